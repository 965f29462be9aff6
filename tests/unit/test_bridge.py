"""The SDK bridge: a real SDK provider when it is needed, and not before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PRELUDE = """
import json, sys
from opentelemetry import trace
from ray_tracing_hooks._safety.patching import Patches
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._record import sampling
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import Recorder
from ray_tracing_hooks._sdk import bridge
from ray_tracing_hooks._spool.writer import SpoolWriter

writer = SpoolWriter(sys.argv[1])
recorder = Recorder(
    writer, resource=encode.resource({"service.name": "x"}), scope=encode.scope("x"),
    sampler=sampling.from_environment({}), limits=SpanLimits(),
)
patches = Patches()

def install():
    bridge.install(recorder, writer, {"service.name": "mine"}, patches)

def sdk_imported():
    return "opentelemetry.sdk.trace" in sys.modules

def spans():
    from ray_tracing_hooks._insight.ingest.files import span_files
    from ray_tracing_hooks._insight.ingest.load import read
    found = read(span_files([sys.argv[1]]))[0]
    return [[s.name, s.resource.get("service.name"), s.scope, s.parent_id and "child"] for s in found]
"""


def in_a_process(program: str, folder: Path, stderr: str | None = "", **variables: str) -> Any:
    """What a program prints as JSON, in a process of its own: the global provider is set once in a process.

    ``stderr`` is what it says besides; None for whatever it is.
    """
    import os

    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, str(folder)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    assert stderr is None or done.stderr == stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("value", ["abc", "-3"])
def test_a_limit_with_which_the_sdk_cannot_be_imported_does_not_reach_the_program(tmp_path: Path, value: str) -> None:
    """The SDK reads it when it is imported, and raises; programs that use the API alone never import it.

    The environment of the process stays as it is, since threads of Ray in C++ may be reading it.
    """
    program = """
import os
changing, os.putenv, os.unsetenv = (os.putenv, os.unsetenv), None, None
install()
with trace.get_tracer("lib").start_as_current_span("own"):
    pass
os.putenv, os.unsetenv = changing
print(json.dumps([os.environ["OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"], [name for name, *_ in spans()]]))
"""
    found = in_a_process(program, tmp_path, stderr=None, OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=value)
    assert found == [value, ["own"]]


def test_the_sdk_is_imported_when_the_first_span_starts(tmp_path: Path) -> None:
    """A tracer costs nothing; a span of it is recorded by a real SDK, in the spool, with our resource."""
    program = """
install()
tracer = trace.get_tracer("lib", "1.0")
before = sdk_imported()
with tracer.start_as_current_span("outer"), tracer.start_as_current_span("inner"):
    pass
print(json.dumps([before, sdk_imported(), spans()]))
"""
    found = in_a_process(program, tmp_path)
    assert found == [False, True, [["outer", "mine", "lib", ""], ["inner", "mine", "lib", "child"]]]


def test_who_asks_for_the_provider_finds_the_sdks(tmp_path: Path) -> None:
    program = """
install()
provider = trace.get_tracer_provider()
before = sdk_imported()
import opentelemetry.sdk.trace as sdk
print(json.dumps([before, isinstance(provider, sdk.TracerProvider), type(provider) is sdk.TracerProvider]))
"""
    found = in_a_process(program, tmp_path)
    assert found == [False, True, True]


AFTER_END = """
import time
from opentelemetry.trace import set_span_in_context, use_span

def of_program(end_time):
    span = tracer.start_span("of the program")
    span.end(end_time)
    return span

def of_ray(end_time):
    from ray_tracing_hooks._record.recorder import Template
    span = recorder.start(Template("of Ray", 1, {}), *recorder.decide(None), None)
    span.end(end_time)
    return span

def known(span):
    link = [each.context.span_id for each in span.links]
    return [span.parent and span.parent.span_id, link, span.attributes.get("ray.after_end", 0) >= 1.5]

found = []
for make in (of_program, of_ray):
    recent, over = make(time.time_ns() + 3600 * 10**9), make(time.time_ns() - 1_500_000_000)
    ids = [each.get_span_context().span_id for each in (recent, over)]
    with use_span(recent), tracer.start_as_current_span("soon after") as soon:
        found.append(known(soon) == [ids[0], [], False])
    with use_span(over), tracer.start_as_current_span("later", links=[trace.Link(recent.get_span_context())]) as later:
        found.append(known(later) == [None, [ids[1], ids[0]], True])
        found.append(later.get_span_context().trace_id != over.get_span_context().trace_id)
        with tracer.start_as_current_span("inside") as inside:
            found.append(known(inside) == [later.get_span_context().span_id, [], False])
        named = tracer.start_span("below a named span", set_span_in_context(over))
        found.append(known(named) == [ids[1], [], False])
"""


@pytest.mark.parametrize("provider", ["ours", "that of the program"])
def test_a_span_in_the_context_of_one_that_is_over_begins_a_trace(provider: str, tmp_path: Path) -> None:
    """Linked to that one; the program can still name any parent. Without tracing it is as the SDK has it."""
    set_provider = """
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
"""
    program = """
bridge.uninstall()
with use_span(over), tracer.start_as_current_span("untraced") as span:
    found.append(span.get_span_context().trace_id == over.get_span_context().trace_id)
print(json.dumps(found))
"""
    found = in_a_process(
        (set_provider if provider != "ours" else "")
        + 'install()\ntracer = trace.get_tracer("lib")'
        + AFTER_END
        + program,
        tmp_path,
    )
    assert found == [True] * 11


@pytest.mark.parametrize(("kind", "stays"), [("CONSUMER", True), ("INTERNAL", False)])
def test_a_span_of_the_program_is_no_parent_once_the_call_that_it_is_within_is_over(
    kind: str, stays: bool, tmp_path: Path
) -> None:
    """A web framework ends its span with the response, and runs background tasks in its context after that."""
    program = f"""
import time
from opentelemetry.trace import use_span
from ray_tracing_hooks._record.recorder import Template
install()
tracer = trace.get_tracer("framework")
call = recorder.start(Template("call", trace.SpanKind.{kind}.value + 1, {{}}), *recorder.decide(None), None)
with use_span(call):
    of_headers = trace.set_span_in_context(trace.NonRecordingSpan(call.get_span_context()))
    request = tracer.start_span("request", of_headers)
    with use_span(request):
        response = tracer.start_span("response")
ended = time.time_ns() - 1_500_000_000
request.end(ended)
response.end(ended)
found = []
for each in request, response:
    with use_span(each):
        found.append(tracer.start_span("background task").parent == each.get_span_context())
call.end(ended)
with use_span(response):
    found.append(tracer.start_span("later").parent is None)
print(json.dumps(found))
"""
    found = in_a_process(program, tmp_path)
    assert found == [stays, stays, True]


def test_tracers_can_be_pickled_before_and_after_their_first_span(tmp_path: Path) -> None:
    """A module-level tracer is in what Ray pickles; without tracing it can be pickled, so with it it must be."""
    program = """
import pickle
install()
early = trace.get_tracer("lib", "1.0", attributes={"a": 1})
pickle.loads(pickle.dumps(early)).start_span("one").end()
late = trace.get_tracer("other")
late.start_span("two").end()
pickle.loads(pickle.dumps(late)).start_span("three").end()
pickle.loads(pickle.dumps(early)).start_span("four").end()
print(json.dumps([[name, scope] for name, _, scope, _ in spans()]))
"""
    found = in_a_process(program, tmp_path)
    assert found == [["one", "lib"], ["two", "other"], ["three", "other"], ["four", "lib"]]


def test_providers_and_spans_can_be_pickled_and_copied_as_without_tracing(tmp_path: Path) -> None:
    """Those that a remote function refers to. A span becomes one that records nothing, with the same context."""
    program = """
import copy, pickle
install()
results = []
for _ in "early", "late":
    provider = trace.get_tracer_provider()
    for same in (pickle.loads(pickle.dumps(provider)), copy.deepcopy(provider)):
        results.append(same is trace.get_tracer_provider())
    span = provider.get_tracer("lib").start_span("span")
    for same in (pickle.loads(pickle.dumps(span)), copy.deepcopy(span)):
        results.append(same.get_span_context() == span.get_span_context() and not same.is_recording())
    span.end()
print(json.dumps(results))
"""
    found = in_a_process(program, tmp_path)
    assert found == [True] * 8


def test_a_provider_that_is_there_is_joined(tmp_path: Path) -> None:
    """The user's provider stays, with its resource and processors; its spans are in the spool too, once."""
    program = """
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
"""
    found = in_a_process(program, tmp_path)
    assert found == [True, [["span", "theirs", "lib", ""]], 1]


@pytest.mark.parametrize("name", ["trace.set_tracer_provider", "set_tracer_provider"])
def test_a_provider_that_is_set_later_takes_the_place_of_ours(name: str, tmp_path: Path) -> None:
    """Without us it would have been accepted, so it is; a second one is refused as ever. By whichever name: the
    program may have imported the functions before.
    """
    program = f"""
import logging
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import get_tracer, get_tracer_provider, set_tracer_provider
install()
get_tracer("lib").start_span("early").end()
provider = TracerProvider(resource=Resource({{"service.name": "theirs"}}))
{name}(provider)
get_tracer("lib").start_span("late").end()
logging.disable(logging.WARNING)
{name}(TracerProvider())
same = trace.set_tracer_provider is set_tracer_provider
print(json.dumps([get_tracer_provider() is provider, same, spans()]))
"""
    found = in_a_process(program, tmp_path)
    assert found == [True, True, [["early", "mine", "lib", ""], ["late", "theirs", "lib", ""]]]


def test_processors_of_others_see_rays_spans(tmp_path: Path) -> None:
    """A processor that the program adds, at whatever time, is given the spans that are not the SDK's own."""
    program = """
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from ray_tracing_hooks._formats.encoded_span.encode import identity_of
from ray_tracing_hooks._record.recorder import Template
install()
recorder.record(Template("unseen", 4, {}), identity_of(bytes(range(16)), bytes(range(8)), None), 1, 2, b"")
exporter = InMemorySpanExporter()
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
recorder.record(Template("seen", 4, {"a": 1}), identity_of(bytes(range(16)), bytes(range(8)), None), 1, 2, b"")
(span,) = exporter.get_finished_spans()
service = span.resource.attributes["service.name"]
print(json.dumps([span.name, span.kind.name, dict(span.attributes), span.start_time, service]))
"""
    found = in_a_process(program, tmp_path)
    assert found == ["seen", "PRODUCER", {"a": 1}, 1, "mine"]


def test_samplers_and_limits_of_the_environment_hold_for_user_spans(tmp_path: Path) -> None:
    program = """
install()
trace.get_tracer("lib").start_span("dropped").end()
print(json.dumps(spans()))
"""
    found = in_a_process(program, tmp_path, OTEL_TRACES_SAMPLER="always_off")
    assert found == []


OWN = """
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()

def own(**options):
    provider = TracerProvider(resource=Resource({"service.name": "theirs"}), **options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider

def exported():
    return [span.name for span in exporter.get_finished_spans()]

def names():
    return [name for name, *_ in spans()]
"""


def test_tracers_of_before_are_tracers_of_the_provider_that_is_set_later(tmp_path: Path) -> None:
    """Modules have theirs from their import on. The API's would find the provider, and so do ours, used or unused."""
    program = """
install()
unused, used = trace.get_tracer("unused"), trace.get_tracer("used")
used.start_span("early").end()
real = trace.get_tracer("real")
trace.set_tracer_provider(own())
for tracer in (unused, used, real):
    tracer.start_span("late").end()
print(json.dumps([exported(), names()]))
"""
    found = in_a_process(OWN + program, tmp_path)
    assert found == [["late"] * 3, ["early", *["late"] * 3]]


def test_the_sampler_of_the_programs_provider_is_asked_for_rays_spans_too(tmp_path: Path) -> None:
    """As it would be with Ray's own tracing: else every span below Ray's were recorded, whatever the program's says."""
    program = """
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler
class Broken(Sampler):
    def should_sample(self, *args, **kwargs):
        raise OSError("no")
    def get_description(self):
        return "broken"
usual = recorder.sampler
decisions = []
trace.set_tracer_provider(own())
install()
decisions.append(recorder.sampler is usual)
for sampler in (ParentBased(ALWAYS_OFF), Broken()):
    bridge._bridge._join(own(sampler=sampler))
    decisions.append([recorder.decide(None)[1] & 1, recorder.sampler.child(True, bytes(range(16)))])
print(json.dumps(decisions))
"""
    found = in_a_process(
        OWN + program,
        tmp_path,
        stderr="ray_tracing_hooks: calling the sampler failed: OSError: no; your program continues without it\n",
    )
    assert found == [True, [0, True], [1, True]]


def test_spans_do_not_arrive_twice_where_the_program_sends_to_the_same_collector(tmp_path: Path) -> None:
    """Its exporter to our target is left out, before and after; those to others, and of another kind, are not."""
    program = """
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http
from ray_tracing_hooks._formats.encoded_span.encode import identity_of
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._ship.registry import otlp_targets
from ray_tracing_hooks._settings.table import Settings
from ray_tracing_hooks._ship.plan import ShipPlan
import os

class Redacting(BatchSpanProcessor):
    pass

def install_otlp():
    plan = ShipPlan(("local", "otlp", "jaeger"), Settings())
    environ = {**os.environ, "RAY_TRACING_JAEGER_PROTOCOL": "otlp-http"}
    bridge.install(recorder, writer, {}, patches, lambda: otlp_targets(plan, environ))

def kinds():
    processors = bridge._processors(provider)
    return [
        type(processor).__name__ + getattr(getattr(processor, "span_exporter", None), "_endpoint", "")
        for processor in processors
    ]

provider = own()
for exporter_to in (Grpc("http://collector:4317"), Http("http://localhost:4318/v1/traces"), Grpc("http://other:4317")):
    provider.add_span_processor(BatchSpanProcessor(exporter_to))
before = kinds()
trace.set_tracer_provider(provider)
install_otlp()
joined = kinds()
provider.add_span_processor(Redacting(Grpc(endpoint="http://collector:4317")))
provider.add_span_processor(SimpleSpanProcessor(Grpc(endpoint="http://collector:4317")))
added = kinds()
recorder.record(Template("of Ray", 4, {}), identity_of(bytes(range(16)), bytes(range(8)), None), 1, 2, b"")
seen = exported()
bridge.uninstall()
print(json.dumps([before, joined, added, seen, sorted(kinds())]), flush=True)
os._exit(0)  # or its exporters look for the collectors
"""
    found = in_a_process(OWN + program, tmp_path, stderr=None, OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4317")
    before, joined, added, seen, left = found
    assert len(before) == 4
    assert joined == ["SpoolSpanProcessor", "SimpleSpanProcessor", "BatchSpanProcessorother:4317"]
    assert added == [*joined, "Redactingcollector:4317"]
    assert seen == ["of Ray"]
    assert left == sorted([*before, "Redactingcollector:4317", "SimpleSpanProcessorcollector:4317"])


def test_the_provider_is_as_it_was_when_tracing_stops(tmp_path: Path) -> None:
    """Ours makes room, the program's has its own processors, and nothing is recorded. Then all of it again."""
    program = """
tracer = trace.get_tracer("early")
def look():
    tracer.start_span("span").end()
    trace.get_tracer("late").start_span("span").end()
    provider = trace.get_tracer_provider()
    return [type(provider).__name__, len(names()), len(exported()), "add_span_processor" in vars(provider)]

found = []
for _ in range(2):
    install()
    held = trace.get_tracer("held")
    held.start_span("span").end()
    found.append(look())
    bridge.uninstall()
    patches.undo()
    held.start_span("span").end()
    found.append(look())
provider = own()
trace.set_tracer_provider(provider)
processors = bridge._processors(provider)
for _ in range(2):
    install()
    found.append(look())
    bridge.uninstall()
    found.append(look())
held.start_span("of held").end()
found.append([exported()[-1], bridge._processors(provider) == processors])
print(json.dumps(found))
"""
    found = in_a_process(OWN + program, tmp_path)
    assert found == [
        ["TracerProvider", 3, 0, True],
        ["ProxyTracerProvider", 3, 0, False],
        ["TracerProvider", 6, 0, True],
        ["ProxyTracerProvider", 6, 0, False],
        # The early tracer is the API's, which holds on to the first that it has found for good.
        ["TracerProvider", 8, 1, True],
        ["TracerProvider", 8, 2, False],
        ["TracerProvider", 10, 3, True],
        ["TracerProvider", 10, 4, False],
        ["of held", True],
    ]


AGAIN = """
held = []

def install_again(service, limits=recorder.limits, rule=None):
    patches.undo()
    again = SpoolWriter(sys.argv[1])
    follower = Recorder(
        again, resource=encode.resource({"service.name": service}), scope=encode.scope("x"),
        sampler=sampling.from_environment({}), limits=limits,
    )
    if rule is not None:
        follower.unsampled = unsampled(follower, rule)
    bridge.install(follower, again, {"service.name": service}, patches)
    held.append(follower)
"""


def test_tracers_that_the_program_holds_record_for_the_cluster_that_it_has_joined(tmp_path: Path) -> None:
    """Their spans have the Resource of that connection, also a span that began before."""
    program = """
unused = trace.get_tracer("lib")
install()
pending = trace.get_tracer("lib")
pending.start_span("first").end()
sdk = trace.get_tracer("lib")
spanning = sdk.start_span("spanning")
install_again("another")
spanning.end()
for tracer in (unused, pending, sdk, trace.get_tracer("new")):
    tracer.start_span("second").end()
install_again("a third")
sdk.start_span("third").end()
resource = trace.get_tracer_provider().resource.attributes["service.name"]
print(json.dumps([sorted({tuple(span[:2]) for span in spans()}), resource]))
"""
    found = in_a_process(AGAIN + program, tmp_path)
    expected = [["first", "mine"], ["second", "another"], ["spanning", "another"], ["third", "a third"]]
    assert found == [expected, "a third"]


def test_a_provider_that_the_environment_names_is_loaded_and_joined(tmp_path: Path) -> None:
    """The API would load it at its first use. For a wrong name, where the API raises, ours takes its place."""
    program = """
import logging
logging.disable(logging.ERROR)
install()
trace.get_tracer("lib").start_span("span").end()
import os
print(json.dumps([type(trace._TRACER_PROVIDER).__name__, len(os.listdir(sys.argv[1]))]))
"""
    name = "OTEL_PYTHON_TRACER_PROVIDER"
    for value, expected in (
        ("default_tracer_provider", ["NoOpTracerProvider", 0]),
        ("", ["TracerProvider", 1]),
        ("sdk_tracer_provider", ["TracerProvider", 1]),
        ("wrong", ["TracerProvider", 1]),
    ):
        folder = tmp_path / f"of {value}"
        folder.mkdir()
        assert in_a_process(program, folder, **{name: value}) == expected, value


KEEPING = """
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags, set_span_in_context
from ray_tracing_hooks._record.recorder import UnsampledRecorder
from ray_tracing_hooks._record.sampling import KeepRule
RULE = KeepRule(errors=True, slower_ns=1e9)

def unsampled(recorder, rule):
    return UnsampledRecorder(
        writer, resource=b"", scope=b"", sampler=recorder.sampler, limits=recorder.limits, rule=rule, of_caller=b""
    )

def install_keeping():
    recorder.unsampled = unsampled(recorder, RULE)
    install()

def within(flags):
    return set_span_in_context(NonRecordingSpan(SpanContext(flags + 1, 7, True, TraceFlags(flags))))

def reasons():
    from ray_tracing_hooks._insight.ingest.files import span_files
    from ray_tracing_hooks._insight.ingest.load import read
    found = read(span_files([sys.argv[1]]))[0]
    return sorted([s.name, s.state, s.attributes.get("ray.sampling.reason", "")] for s in found)
"""


def test_spans_that_are_not_sampled_are_recorded_if_they_fail_or_are_slow(tmp_path: Path) -> None:
    """They count as not sampled, for the called service and for a processor that exports sampled spans."""
    program = """
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
install_keeping()
exporter = InMemorySpanExporter()
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
tracer = trace.get_tracer("lib")
flags = []
for each in (0, 1):
    with tracer.start_as_current_span(f"outer {each}", within(each)) as span, tracer.start_as_current_span("inner"):
        flags.append([span.is_recording(), span.get_span_context().trace_flags])
with tracer.start_as_current_span("failed", within(0)) as span:
    span.set_status(Status(StatusCode.ERROR))
slow = tracer.start_span("slow", within(0), start_time=10**18)
slow.end(10**18 + 10**9)
tracer.start_span("open", within(0))
exported = [span.name for span in exporter.get_finished_spans()]
print(json.dumps([flags, exported, reasons()]))
"""
    found = in_a_process(KEEPING + program, tmp_path)
    flags, exported, recorded = found
    assert flags == [[True, 0], [True, 1]]
    assert exported == ["inner", "outer 1"]
    assert recorded == [
        ["failed", "ended", "error"],
        ["inner", "ended", ""],
        ["outer 1", "ended", ""],
        ["slow", "ended", "slow"],
    ]


def test_what_a_program_passes_to_its_spans_never_fails_it(tmp_path: Path) -> None:
    """Without tracing the same calls do nothing. Its own error is the one that it sees, with a text or without."""
    found = in_a_process(
        """
from ray_tracing_hooks._safety import guard
said = []
guard.set_reporter(said.append)
install()

class Bad:
    def __str__(self):
        raise RuntimeError("no text")
    __repr__ = __bool__ = __str__

bad, tracer = Bad(), trace.get_tracer("lib")
link = trace.Link(trace.SpanContext(1, 2, is_remote=False), {"a": bad})
tracer.start_span(bad).end()
with tracer.start_span("first", attributes={"good": 1, "bad": bad}, links=[link]) as span:
    attributes = dict(span.attributes)
    span.set_attribute("a", bad)
    span.set_attributes({"b": bad})
    span.add_event("event", {"c": bad})
    span.add_event(bad)
    span.add_link(link.context, link.attributes)
    span.update_name(bad)
    span.set_status(trace.StatusCode.ERROR, bad)
    span.record_exception(ValueError(bad))
    span.record_exception(ValueError("good"), {"d": bad})
raised = []
for block in tracer.start_as_current_span("second"), tracer.start_span("third"):
    error = ValueError(bad)
    try:
        with block as span:
            raise error
    except BaseException as seen:
        raised.append(seen is error)
    raised += [span.status.description, [event.attributes["exception.message"] for event in span.events]]
print(json.dumps([attributes, raised, sorted(name for name, *_ in spans()), said[0].partition(";")[0]]))
""",
        tmp_path,
        stderr=None,  # the SDK says what it does not take
    )
    text = "<ValueError that cannot be shown>"
    failed, said = [True, f"ValueError: {text}", [text]], "setting an attribute failed: RuntimeError: no text"
    assert found == [{"good": 1}, failed * 2, ["<Bad that cannot be shown>"] * 2 + ["second", "third"], said]


def test_spans_of_the_program_have_the_time_of_the_system_while_a_test_freezes_it(tmp_path: Path) -> None:
    """As freezegun does, which replaces the functions wherever a module has one of them."""
    program = """
import time
install()
tracer = trace.get_tracer("lib")
tracer.start_span("first").end()
real, real_monotonic = time.time_ns, time.monotonic
for module in {*sys.modules.values()} - {sys.modules["__main__"]}:
    for name, value in list(vars(module).items()):
        if value is real or value is real_monotonic:
            setattr(module, name, lambda: 1)
before = real()
with tracer.start_as_current_span("frozen") as span:
    span.add_event("event")
moments = [before, span.start_time, span.events[0].timestamp, span.end_time, real()]
print(json.dumps([time.time_ns(), moments == sorted(moments)]))
"""
    found = in_a_process(program, tmp_path)
    assert found == [1, True]


def test_processors_of_the_program_get_the_root_span_before_they_are_shut_down(tmp_path: Path) -> None:
    """A driver that does not call ``ray.shutdown()`` ends its root span at the exit of the interpreter."""
    program = """
import atexit
def tell():
    again = recorder.observer is not None
    print(json.dumps([exported(), again]))
atexit.register(tell)
trace.set_tracer_provider(own())
root = trace.get_tracer("lib").start_span("root")
bridge.install(recorder, writer, {}, patches, end_root=root.end)
"""
    found = in_a_process(OWN + program, tmp_path)
    assert found == [["root"], False]


def test_spans_of_a_provider_of_the_program_say_where_they_were_made(tmp_path: Path) -> None:
    program = """
trace.set_tracer_provider(own())
bridge.install(recorder, writer, {"service.name": "mine", "ray.node_id": "n"}, patches)
trace.get_tracer("lib").start_span("span").end()
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import read
(span,) = read(span_files([sys.argv[1]]))[0]
print(json.dumps(dict(span.resource)))
"""
    found = in_a_process(OWN + program, tmp_path)
    assert found == {"service.name": "theirs", "ray.node_id": "n"}
