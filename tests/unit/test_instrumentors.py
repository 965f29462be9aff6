"""Instrumentation of libraries that the user names."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_server import Answer, Request, http_server

from ray_tracing_hooks._sdk import instrumentors

PACKAGE = """
done = []

class Base:
    is_instrumented_by_opentelemetry = False
    _instance = None
    def __new__(cls):
        cls._instance = cls._instance or super().__new__(cls)
        return cls._instance
    def instrument(self):
        done.append("+" + type(self).__name__)
        self.is_instrumented_by_opentelemetry = True
    def uninstrument(self):
        done.append("-" + type(self).__name__)
        self.is_instrumented_by_opentelemetry = False

class Good(Base): pass
class Other(Base): pass
class Raises(Base):
    def instrument(self): raise BaseException("no {way}")
class Exits(Base):
    def instrument(self): raise SystemExit
class Stuck(Base):
    def uninstrument(self): raise RuntimeError("stuck")
"""


def install(folder: Path, name: str, requires: str, **entry_points: str) -> None:
    """A package with these instrumentors, installed as pip would leave it."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    extra = f"Provides-Extra: instruments\nRequires-Dist: {requires}; extra == 'instruments'\n" if requires else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{extra}")
    lines = [f"{key.replace('_', '-')} = {value}\n" for key, value in entry_points.items()]
    (info / "entry_points.txt").write_text("[opentelemetry_instrumentor]\n" + "".join(lines))


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the instrumentors of packages made for the test were asked to do."""
    (tmp_path / "our_instrumentors.py").write_text(PACKAGE)
    module = "our_instrumentors"
    install(tmp_path, "ours-good", "pytest>=1", good_one=f"{module}:Good")
    install(tmp_path, "ours-other", "", other=f"{module}:Other", raises=f"{module}:Raises")
    install(tmp_path, "ours-missing", "no-such-library>=1", missing=f"{module}:Other")
    install(tmp_path, "ours-conflict", "pytest<1", conflict=f"{module}:Other")
    install(tmp_path, "ours-absent", "", absent="no_such_module:Instrumentor")
    monkeypatch.syspath_prepend(str(tmp_path))
    import our_instrumentors  # type: ignore[import-not-found]  # made above

    yield our_instrumentors.done
    instrumentors._ours.clear()
    del sys.modules["our_instrumentors"]


def instrument(*names: str, **environ: str) -> tuple[list[str], list[str]]:
    """What is new, and what was reported."""
    reported: list[str] = []
    return instrumentors.instrument(names, environ, reported.append), reported


def test_what_is_named_is_instrumented_once_and_can_be_taken_out(done: list[str]) -> None:
    """A second ray.init() finds it on; after the end it can be put in again."""
    assert instrument("good-one") == (["good-one"], [])
    assert instrument("good-one") == ([], [])
    assert done == ["+Good"]
    reported: list[str] = []
    instrumentors.uninstrument(reported.append)
    instrumentors.uninstrument(reported.append)
    assert instrument("Good_One") == (["good-one"], []), "written the way of other packages"
    instrumentors.uninstrument(reported.append)
    assert done == ["+Good", "-Good", "+Good", "-Good"]
    assert reported == []


def test_what_others_have_instrumented_is_left_alone(done: list[str]) -> None:
    import our_instrumentors

    our_instrumentors.Good().instrument()
    assert instrument("good-one", "other") == (["other"], [])
    instrumentors.uninstrument(print)
    assert done == ["+Good", "+Other", "-Other"]


def test_what_others_have_taken_out_already_is_left_alone(done: list[str]) -> None:
    import our_instrumentors

    instrument("good-one")
    our_instrumentors.Good().uninstrument()
    instrumentors.uninstrument(print)
    assert done == ["+Good", "-Good"]


def test_an_unknown_name_is_reported_with_what_to_do(done: list[str]) -> None:
    """And the others are instrumented all the same."""
    new, (problem,) = instrument("good_on", "other")
    assert new == ["other"]
    assert problem.startswith(
        "RAY_TRACING_INSTRUMENT: no instrumentation 'good_on' is installed; did you mean 'good-one'? "
        "installed are absent,"
    )
    assert problem.endswith("; pip install opentelemetry-instrumentation-good-on where the driver and the workers run")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing", "it needs no-such-library>=1, which is not installed"),
        ("conflict", "it needs pytest<1, but pytest "),
        ("absent", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raises", "BaseException: no {way}"),
    ],
)
def test_one_that_fails_is_reported_and_the_next_is_instrumented(name: str, problem: str, done: list[str]) -> None:
    new, (told,) = instrument(name, "good-one")
    assert new == ["good-one"]
    assert told.startswith(f"RAY_TRACING_INSTRUMENT: {name!r} is not instrumented: {problem}")


def test_a_missing_instrumentation_is_reported_with_the_setting_that_asked_for_it(done: list[str]) -> None:
    reported: list[str] = []
    assert instrumentors.instrument(["good-two"], {}, reported.append, setting="RAY_TRACING_X") == []
    assert reported[0].startswith("RAY_TRACING_X: no instrumentation 'good-two' is installed; ")
    assert reported[0].endswith(
        "; pip install opentelemetry-instrumentation-good-two where the driver and the workers run"
    )


def test_all_passes_over_what_is_not_there(done: list[str]) -> None:
    """A library that is not installed needs no word; one of a version that does not fit does."""
    new, reported = instrument("all")
    assert {"good-one", "other", "requests"} <= set(new)
    assert sorted(problem.split("'")[1] for problem in reported) == ["conflict", "raises"]
    instrumentors.uninstrument(print)


@pytest.mark.parametrize(
    ("disabled", "expected"), [("other, Good_One", []), ("*", []), ("other", ["good-one"]), ("", ["good-one", "other"])]
)
def test_disabled_instrumentations_stay_off(disabled: str, expected: list[str], done: list[str]) -> None:
    """The standard variable wins over ours."""
    new, reported = instrument("good-one", "other", OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=disabled)
    assert (sorted(new), reported) == (expected, [])


def test_an_exit_is_not_swallowed(done: list[str], tmp_path: Path) -> None:
    install(tmp_path, "ours-exits", "", exits="our_instrumentors:Exits")
    with pytest.raises(SystemExit):
        instrument("exits")


def test_one_that_cannot_be_taken_out_is_reported_and_the_others_are(done: list[str], tmp_path: Path) -> None:
    install(tmp_path, "ours-stuck", "", stuck="our_instrumentors:Stuck")
    instrument("good-one", "stuck")
    reported: list[str] = []
    instrumentors.uninstrument(reported.append)
    assert done == ["+Good", "+Stuck", "-Good"]
    assert reported == ["our_instrumentors:Stuck could not be uninstrumented: RuntimeError: stuck"]


# -- a real one

FETCHING = """
import json, logging, sys
logging.basicConfig(level=logging.DEBUG, filename=sys.argv[1] + ".log")
import requests
from opentelemetry import trace
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import read
from ray_tracing_hooks._safety.patching import Patches
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._record import sampling
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import Recorder
from ray_tracing_hooks._sdk import bridge, instrumentors
from ray_tracing_hooks._spool.writer import SpoolWriter

writer = SpoolWriter(sys.argv[1])
recorder = Recorder(
    writer, resource=encode.resource({}), scope=encode.scope("x"), sampler=sampling.from_environment({}),
    limits=SpanLimits(),
)
bridge.install(recorder, writer, {"service.name": "mine"}, Patches())
new = instrumentors.instrument(("requests",), {}, print)
before = "opentelemetry.sdk.trace" in sys.modules
with trace.get_tracer("mine").start_as_current_span("outer"):
    requests.get(sys.argv[2])
instrumentors.uninstrument(print)
requests.get(sys.argv[2])
spans = [[s.name, s.kind, s.trace_id, s.span_id, s.parent_id] for s in read(span_files([sys.argv[1]]))[0]]
print(json.dumps([new, before, spans]))
"""


@pytest.fixture
def server() -> Iterator[tuple[str, list[str | None]]]:
    """The address of a server, and the ``traceparent`` of each request to it."""
    heard: list[str | None] = []

    def answer(request: Request) -> Answer:
        heard.append(request.headers.get("traceparent"))
        return Answer(204)

    with http_server(answer) as url:
        yield f"{url}/", heard


def test_a_request_is_a_child_of_the_current_span(tmp_path: Path, server: tuple[str, list[str | None]]) -> None:
    """In the spool, by the bridge; the server hears of it; nothing is left of it after it was taken out."""
    address, heard = server
    program = [sys.executable, "-c", FETCHING, str(tmp_path / "spool"), address]
    (tmp_path / "spool").mkdir(mode=0o700)
    done = subprocess.run(program, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    new, imported_before, spans = json.loads(done.stdout)
    assert new == ["requests"]
    assert not imported_before, "the SDK waits for the first span"
    by_name = {span[0]: span for span in spans}
    assert set(by_name) == {"GET", "outer"}
    _, kind, trace_id, span_id, parent_id = by_name["GET"]
    assert kind == 3
    assert parent_id == by_name["outer"][3]
    during, after = heard
    assert during is not None
    assert during.startswith(f"00-{trace_id}-{span_id}-")
    assert after is None
