"""The SDK bridge: a real SDK provider when it is needed, and not before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PRELUDE = """
import json, sys
from opentelemetry import trace
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._record import sampling, wire
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import Recorder
from ray_tracing_hooks._sdk import bridge
from ray_tracing_hooks._spool.writer import SpoolWriter

writer = SpoolWriter(sys.argv[1])
recorder = Recorder(
    writer, resource=wire.resource({"service.name": "x"}), scope=wire.scope("x"),
    sampler=sampling.from_environment({}), limits=SpanLimits(),
)
patches = Patches()

def install():
    bridge.install(recorder, writer, {"service.name": "mine"}, patches)

def sdk_imported():
    return "opentelemetry.sdk.trace" in sys.modules

def spans():
    from ray_tracing_hooks._insight.read import files, read
    found = read(files([sys.argv[1]]))[0]
    return [[s.name, s.resource.get("service.name"), s.scope, s.parent_id and "child"] for s in found]
"""


def in_a_process(program: str, folder: Path, **variables: str) -> Any:
    """What a program prints as JSON, in a process of its own: the global provider is set once in a process."""
    import os

    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, str(folder)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "nothing is warned about"
    return json.loads(done.stdout)


def test_the_sdk_is_imported_when_the_first_span_starts(tmp_path: Path) -> None:
    """A tracer costs nothing; a span of it is recorded by a real SDK, in the spool, with our resource."""
    found = in_a_process(
        """
install()
tracer = trace.get_tracer("lib", "1.0")
before = sdk_imported()
with tracer.start_as_current_span("outer"), tracer.start_as_current_span("inner"):
    pass
print(json.dumps([before, sdk_imported(), spans()]))
""",
        tmp_path,
    )
    assert found == [False, True, [["outer", "mine", "lib", ""], ["inner", "mine", "lib", "child"]]]


def test_who_asks_for_the_provider_finds_the_sdks(tmp_path: Path) -> None:
    found = in_a_process(
        """
install()
provider = trace.get_tracer_provider()
before = sdk_imported()
import opentelemetry.sdk.trace as sdk
print(json.dumps([before, isinstance(provider, sdk.TracerProvider), type(provider) is sdk.TracerProvider]))
""",
        tmp_path,
    )
    assert found == [False, True, True]


def test_tracers_can_be_pickled_before_and_after_their_first_span(tmp_path: Path) -> None:
    """A module-level tracer is in what Ray pickles; without tracing it can be pickled, so with it it must be."""
    found = in_a_process(
        """
import pickle
install()
early = trace.get_tracer("lib", "1.0", attributes={"a": 1})
pickle.loads(pickle.dumps(early)).start_span("one").end()
late = trace.get_tracer("other")
late.start_span("two").end()
pickle.loads(pickle.dumps(late)).start_span("three").end()
pickle.loads(pickle.dumps(early)).start_span("four").end()
print(json.dumps([[name, scope] for name, _, scope, _ in spans()]))
""",
        tmp_path,
    )
    assert found == [["one", "lib"], ["two", "other"], ["three", "other"], ["four", "lib"]]


def test_a_provider_that_is_there_is_joined(tmp_path: Path) -> None:
    """The user's provider stays, with its resource and processors; its spans are in the spool too, once."""
    found = in_a_process(
        """
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider(resource=Resource({"service.name": "theirs"}))
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
install()
install()
trace.get_tracer("lib").start_span("span").end()
print(json.dumps([trace.get_tracer_provider() is provider, spans(), len(exporter.get_finished_spans())]))
""",
        tmp_path,
    )
    assert found == [True, [["span", "theirs", "lib", ""]], 1]


def test_a_provider_that_is_set_later_takes_the_place_of_ours(tmp_path: Path) -> None:
    """Without us it would have been accepted, so it is; a second one is refused as ever."""
    found = in_a_process(
        """
import logging
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
install()
trace.get_tracer("lib").start_span("early").end()
provider = TracerProvider(resource=Resource({"service.name": "theirs"}))
trace.set_tracer_provider(provider)
trace.get_tracer("lib").start_span("late").end()
logging.disable(logging.WARNING)
trace.set_tracer_provider(TracerProvider())
print(json.dumps([trace.get_tracer_provider() is provider, spans()]))
""",
        tmp_path,
    )
    assert found == [True, [["early", "mine", "lib", ""], ["late", "theirs", "lib", ""]]]


def test_processors_of_others_see_rays_spans(tmp_path: Path) -> None:
    """A processor that the program adds, at whatever time, is given the spans that are not the SDK's own."""
    found = in_a_process(
        """
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from ray_tracing_hooks._record.recorder import Template
install()
recorder.record(Template("unseen", 4, {}), bytes(range(16)), bytes(range(8)), None, 1, 2, b"")
exporter = InMemorySpanExporter()
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
recorder.record(Template("seen", 4, {"a": 1}), bytes(range(16)), bytes(range(8)), None, 1, 2, b"")
(span,) = exporter.get_finished_spans()
service = span.resource.attributes["service.name"]
print(json.dumps([span.name, span.kind.name, dict(span.attributes), span.start_time, service]))
""",
        tmp_path,
    )
    assert found == ["seen", "PRODUCER", {"a": 1}, 1, "mine"]


def test_samplers_and_limits_of_the_environment_hold_for_user_spans(tmp_path: Path) -> None:
    found = in_a_process(
        """
install()
trace.get_tracer("lib").start_span("dropped").end()
print(json.dumps(spans()))
""",
        tmp_path,
        OTEL_TRACES_SAMPLER="always_off",
    )
    assert found == []
