"""A test that checks which spans a task records, with pytest.

Copy it into your project, and run it there:

    pytest test_spans.py

You see it pass. Remove the span ``parse``, and it fails with the difference.
"""

import pytest
import ray
from opentelemetry import trace

from ray_tracing_hooks.testing import capture

tracer = trace.get_tracer(__name__)


@ray.remote
def load(path):
    with tracer.start_as_current_span("parse") as span:
        span.set_attribute("path", path)
        return path.upper()


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup")
    yield
    ray.shutdown()


def test_each_load_is_parsed_once():
    with capture() as captured:
        assert ray.get(load.remote("file")) == "FILE"
    assert captured.tree().splitlines() == [
        f"{__name__}.load ray.remote",
        f"  {__name__}.load ray.remote_worker",
        "    parse",
    ]
    assert captured.named("parse")[0].attributes["path"] == "file"
