"""Programs that set OpenTelemetry up themselves, or are set up by ``opentelemetry-instrument``: theirs goes on as ever,
and nothing is missing or there twice.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from collector import collector
from conftest import Cluster
from support import run_program

RAYS = ["Actor.__init__", "Actor.provide", "Actor.call", "__main__.inside"]
MINE = ["in driver", "in actor", "in task"]


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_provider_of_the_programs_own(order: str, cluster: Cluster, tmp_path: Path) -> None:
    """Set before the hook or after it, in driver and workers: its exporter has its spans and Ray's once, and we too."""
    run = cluster.run("providers", RTH_ORDER=order, RTH_LINES=str(tmp_path / "lines"))
    assert run.result == "carried", "the program's own propagator is used"
    assert Counter(span.name for span in run.spans) == {
        **dict.fromkeys(MINE, 1),
        **{f"{name} ray.{side}": 1 for name in RAYS for side in ("remote", "remote_worker")},
        "providers.py ray.driver": 1,
    }
    lines = (tmp_path / "lines").read_text().splitlines()
    assert len(set(lines)) == len(lines), "no span twice"
    exported = [line.partition("|")[0] for line in lines]
    assert set(MINE) <= set(exported)
    assert {"Actor.call ray.remote", "Actor.call ray.remote_worker", "providers.py ray.driver"} <= set(exported)
    assert {line.partition("|")[2] for line in lines} <= {span.span_id for span in run.spans}
    assert "WARNING" not in run.stderr


def test_opentelemetry_instrument_with_the_same_collector(tmp_path: Path) -> None:
    """Every span arrives once, those of killed workers too; what the program's exporter prints is what it would be and
    Ray's spans besides, and the shipper is no instrumented program.
    """
    # As the package `opentelemetry-distro` has it: without one nothing is set up.
    info = tmp_path / "path" / "distro-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: distro\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[opentelemetry_configurator]\nany = opentelemetry.sdk._configuration:_OTelSDKConfigurator\n"
    )
    with collector() as received:
        run = run_program(
            "traced",
            command=[os.path.join(os.path.dirname(sys.executable), "opentelemetry-instrument")],
            RTH_HOOK="ray_tracing_hooks.otlp:setup",
            PYTHONPATH=os.pathsep.join(filter(None, [str(tmp_path / "path"), os.environ.get("PYTHONPATH")])),
            OTEL_TRACES_EXPORTER="console,otlp",
            OTEL_METRICS_EXPORTER="none",
            OTEL_LOGS_EXPORTER="none",
            OTEL_EXPORTER_OTLP_ENDPOINT=received.endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        )
    assert run.result == [0, 2, 4]
    # Ray makes requests too, which are instrumented like those of the program.
    spans = [span for span in received.spans if span.name != "GET"]
    assert len({span.span_id for span in spans}) == len(spans)
    assert Counter(span.name for span in spans) == {
        "traced.py ray.driver": 1,
        "in driver": 1,
        "in task": 3,
        "__main__.double ray.remote": 3,
        "__main__.double ray.remote_worker": 3,
    }
    assert not [headers for headers in received.headers if "traceparent" in headers], "the shipper is instrumented"
    printed = Counter(re.findall(r'^    "name": "(.*)",$', run.stdout, re.MULTILINE))
    assert printed == {"traced.py ray.driver": 1, "in driver": 1, "__main__.double ray.remote": 3}
    assert run.stderr.count("is disabled, since ray_tracing_hooks sends to it too") == 1
