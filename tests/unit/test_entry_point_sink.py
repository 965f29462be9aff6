"""The sink that hands spans to installed exporters."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from collector import collector
from http_server import Answer, Request, http_server
from plans import made_plan

from ray_tracing_hooks._formats import protobuf
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._safety.guard import SettingError
from ray_tracing_hooks._ship.registry import make_sink, usable
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, Sink, SinkContext
from ray_tracing_hooks._ship.sinks import entry_point

SCOPE = encode.scope("lib", "1.2")


def resource(service: str) -> bytes:
    return encode.resource({"service.name": service, "host.name": "h"})


def span(number: int, parent: int = 0, /, *, name: str = "", **attributes: Any) -> bytes:
    """An encoded CONSUMER span that has the number as its ids and name."""
    return b"".join(
        [
            protobuf.field(0x0A, (99).to_bytes(16, "big")),
            protobuf.field(0x12, number.to_bytes(8, "big")),
            protobuf.field(0x22, parent.to_bytes(8, "big")) if parent else b"",
            encode.name_and_kind(name or str(number), 5),
            protobuf.fixed64(0x39, 1_700_000_000_000_000_000),
            protobuf.fixed64(0x41, 1_700_000_000_250_000_000),
            encode.attributes(attributes),
            encode.FLAGS_LOCAL_PARENT,
        ]
    )


def batch(*numbers: int, service: str = "a") -> Batch:
    return Batch(resource(service), SCOPE, [span(number) for number in numbers])


class Made:
    """Makes sinks, and keeps what they said and counted."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.counted: dict[str, int] = {}
        self.sinks: list[Sink] = []

    def __call__(self, name: str, console_file: str | None = None, **environ: str) -> Sink:
        plan = made_plan((name,), "/nowhere", 1, 1, 1, console_file=console_file)
        self.sinks.append(
            make_sink(name, SinkContext(plan, {}, self.remember, self.count, environ, self.problems.append))
        )
        return self.sinks[-1]

    def remember(self, state: Mapping[str, Any]) -> None:
        raise AssertionError("an exporter has no state")

    def count(self, text: str, number: int) -> None:
        if number:
            self.counted[text.replace("{count}", "N")] = self.counted.get(text.replace("{count}", "N"), 0) + number


@pytest.fixture
def make() -> Iterator[Made]:
    made = Made()
    yield made
    for sink in made.sinks:
        sink.close()


class Exporter:
    """What the exporter ``ours`` exports to: decides about each export and keeps what was taken."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.services: list[list[str]] = []
        self.sizes: list[int] = []
        self.suppressed: list[bool] = []
        self.takes: Callable[[list[int]], Any] = lambda _: True
        self.on_shutdown: Callable[[], None] = lambda: None

    def export(self, spans: Sequence[Any]) -> Any:
        from opentelemetry import context
        from opentelemetry.sdk.trace.export import SpanExportResult

        numbers = [int(span.name) for span in spans]
        self.sizes.append(len(numbers))
        self.suppressed.append(bool(context.get_value(context._SUPPRESS_INSTRUMENTATION_KEY)))
        takes = self.takes(numbers)
        if takes:
            self.taken += numbers
            self.services.append(sorted({span.resource.attributes["service.name"] for span in spans}))
        return {True: SpanExportResult.SUCCESS, False: SpanExportResult.FAILURE}.get(takes)

    def shutdown(self) -> None:
        self.on_shutdown()


PACKAGE = """
import builtins
exporter = None
def make():
    return exporter
def broken():
    raise RuntimeError("bad header secret-value for http://me:word@host/path?key=1")
"""
ENTRY_POINTS = """
[opentelemetry_traces_exporter]
ours = our_exporter:make
broken = our_exporter:broken
missing = our_exporter_without:make
zipkin_proto = our_exporter:make
"""


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Exporter]:
    """A package with exporters, installed as pip would leave it."""
    info = tmp_path / "site" / "our_exporter-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: our-exporter\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "site" / "our_exporter.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    import our_exporter  # type: ignore[import-not-found]  # made above

    our_exporter.exporter = Exporter()
    yield our_exporter.exporter
    import sys

    del sys.modules["our_exporter"]


def deliver(sink: Sink, batches: Sequence[Batch], attempts: int = 3000) -> int:
    """Deliver as the shipper does, without its waits: again and again. How many attempts failed."""
    for failures in range(attempts):
        try:
            sink.deliver(batches)
        except DeliveryError:
            continue
        return failures
    raise AssertionError(f"not delivered after {attempts} attempts")


# -- which exporters there are


def test_installed_exporters_are_found_by_their_names(ours: Exporter) -> None:
    assert {"console", "ours", "zipkin_json"} <= set(entry_point.names())
    assert entry_point.is_installed("ours")
    assert entry_point.is_installed("zipkin"), "by the name that the specification has for it"
    assert not entry_point.is_installed("zipkn")


@pytest.mark.parametrize(
    ("name", "hint"), [("datadoge", "pip install the package"), ("otlp_proto", "otlp_proto_http, ours")]
)
def test_an_exporter_that_is_not_installed_is_an_error_that_says_what_is(
    name: str, hint: str, make: Made, ours: Exporter
) -> None:
    with pytest.raises(SettingError, match=rf"no exporter '{name}' is installed; installed are .*console.*{hint}"):
        make(name)


@pytest.mark.parametrize("name", ["otlp_proto_http", "otlp_proto_grpc"])
def test_the_otlp_exporters_of_opentelemetry_are_installed_with_this_package(name: str, make: Made) -> None:
    """So the names that programs with the SDK know work here too."""
    assert usable([name]) == ((name,), [])
    make(name).close()


def test_spans_go_out_by_the_otlp_exporter_of_opentelemetry(make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads its variables from the environment of the process."""
    with collector() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        sink = make("otlp_proto_http")
        sink.deliver([batch(1, 2)])
        sink.close()
    assert sorted(span.name for span in received.spans) == ["1", "2"]


def test_zipkin_without_its_package_is_an_error_with_the_command_to_type(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(SettingError, match="pip install opentelemetry-exporter-zipkin-json"):
        make("zipkin")


def test_an_exporter_that_cannot_be_made_is_an_error_with_its_own_message(make: Made, ours: Exporter) -> None:
    """But without credentials."""
    with pytest.raises(SettingError, match=r"'missing' .*ModuleNotFoundError: No module named 'our_exporter_without'"):
        make("missing")
    with pytest.raises(SettingError) as raised:
        make("broken", OTEL_EXPORTER_OURS_HEADERS="x=1,key=secret%2Dvalue")
    assert str(raised.value) == (
        "the exporter 'broken' (our_exporter:broken) cannot be created: "
        "RuntimeError: bad header ******** for http://********@host/path?********"
    )


# -- what is exported, and how


def test_spans_go_in_exports_of_the_size_that_is_asked_for(make: Made, ours: Exporter) -> None:
    """512 at once by default, never of two resources, and not traced themselves."""
    deliver(make("ours"), [batch(*range(600)), batch(*range(600, 700)), batch(*range(700, 710), service="b")])
    assert sorted(ours.taken) == list(range(710))
    assert sorted(ours.sizes) == [10, 188, 512]
    assert sorted(ours.services) == [["a"], ["a"], ["b"]]
    assert all(ours.suppressed)
    ours.sizes.clear()
    deliver(make("ours", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="100"), [batch(*range(250))])
    assert ours.sizes == [100, 100, 50]


def test_settings_say_how_long_spans_wait_for_others(make: Made, ours: Exporter) -> None:
    assert make("ours").delay == 1.0
    assert make("ours", OTEL_BSP_SCHEDULE_DELAY="200").delay == 0.2
    assert make("ours", OTEL_BSP_SCHEDULE_DELAY="soon", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="").delay == 1.0
    assert any("OTEL_BSP_SCHEDULE_DELAY" in problem for problem in make.problems)


def test_what_cannot_be_decoded_is_skipped_and_counted(make: Made, ours: Exporter) -> None:
    good = span(2)
    deliver(make("ours"), [Batch(resource("a"), b"\xff", [span(1), b"\xff\xff", good])])
    assert ours.taken == [1, 2]
    assert make.counted == {"N spans could not be decoded and were skipped": 1}


# -- failures


@pytest.mark.parametrize("how", ["failure", "exception", "panic"])
def test_while_the_server_is_away_everything_waits(how: str, make: Made, ours: Exporter) -> None:
    """However long, whether the exporter reports it or raises; then each span is sent once."""

    def away(numbers: list[int]) -> bool:
        if how == "exception":
            raise ConnectionError("<Connection object at 0x7f00> refused {this}")
        if how == "panic":
            raise BaseException("panicked")  # noqa: TRY002  as a PanicException is
        return False

    sink = make("ours")
    batches = [batch(*range(1000)), batch(1000, service="b"), batch(1001, 1002, service="c")]
    ours.takes = away
    messages = set()
    for _ in range(50):
        with pytest.raises(DeliveryError, match="the exporter 'ours' accepts nothing at present") as raised:
            sink.deliver(batches)
        messages.add(str(raised.value))
    assert len(messages) == 1, "the same trouble is told in the same words"
    assert len(ours.sizes) <= 50
    ours.takes = lambda _: True
    assert deliver(sink, batches) == 0
    assert sorted(ours.taken) == list(range(1003))
    assert make.counted == {}


@pytest.mark.parametrize("bad", [{0}, {599}, {0, 300, 301}], ids=str)
def test_a_span_that_is_never_taken_is_refused_and_the_others_get_through(
    bad: set[int], make: Made, ours: Exporter
) -> None:
    """Wherever it stands; it is counted, and each of the others goes once."""

    def takes(numbers: list[int]) -> bool:
        if bad.intersection(numbers):
            raise TypeError("no form for it")
        return True

    ours.takes = takes
    deliver(make("ours"), [batch(*range(600))])
    assert sorted(ours.taken) == [number for number in range(600) if number not in bad]
    assert make.counted == {
        "N spans were refused by the exporter 'ours' and are lost: TypeError: no form for it": len(bad)
    }


def test_a_bad_span_without_any_other_waits(make: Made, ours: Exporter) -> None:
    """Nothing tells it from a bad server."""
    ours.takes = lambda numbers: 1 not in numbers
    sink, batches = make("ours"), [batch(1)]
    for _ in range(20):
        with pytest.raises(DeliveryError):
            sink.deliver(batches)
    assert make.counted == {}


def test_an_exporter_that_returns_nothing_is_believed(make: Made, ours: Exporter) -> None:
    """As the SDK does, which never looks at what is returned unless it is a failure."""
    ours.takes = lambda _: "yes"
    deliver(make("ours"), [batch(1)])
    assert ours.taken == [1]


def test_an_exporter_that_hangs_at_its_end_is_left(make: Made, ours: Exporter) -> None:
    released = threading.Event()

    def hang() -> None:
        released.wait(60)

    ours.on_shutdown = hang
    sink = make("ours")
    deliver(sink, [batch(1)])
    before = time.monotonic()
    sink.close()
    assert time.monotonic() - before < 5
    released.set()


# -- real exporters


class Zipkin:
    """Keeps the spans that are posted to it while its ``status`` is 202."""

    def __init__(self) -> None:
        self.status = 202
        self.posts: list[tuple[str, Any]] = []

    def answer(self, request: Request) -> Answer:
        if self.status == 202:
            self.posts.append((request.path, json.loads(request.body)))
        return Answer(self.status)


@pytest.fixture
def zipkin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Zipkin]:
    zipkin = Zipkin()
    with http_server(zipkin.answer) as url:
        monkeypatch.setenv("OTEL_EXPORTER_ZIPKIN_ENDPOINT", f"{url}/api/v2/spans")
        yield zipkin


def test_zipkin(make: Made, zipkin: Zipkin, caplog: pytest.LogCaptureFixture) -> None:
    """Ids, parents, names, kinds, times, tags and services arrive; what is refused for a while comes once."""
    caplog.set_level(logging.CRITICAL)
    sink = make("zipkin")
    batches = [
        Batch(resource("driver"), SCOPE, [span(1, name="call"), span(3, 1)]),
        Batch(resource("worker"), SCOPE, [span(2, 1, name="run", text="é", number=7, yes=True)]),
    ]
    zipkin.status = 503
    with pytest.raises(DeliveryError, match=r"'zipkin' .* it reported a failure"):
        sink.deliver(batches)
    zipkin.status = 202
    deliver(sink, batches)
    assert {path for path, _ in zipkin.posts} == {"/api/v2/spans"}
    found = {item["name"]: item for _, items in zipkin.posts for item in items}
    assert sum(len(items) for _, items in zipkin.posts) == 3
    assert found["run"]["traceId"] == f"{99:032x}"
    assert found["run"]["parentId"] == found["call"]["id"] == f"{1:016x}"
    assert "parentId" not in found["call"]
    assert found["run"]["kind"] == "CONSUMER"
    assert found["run"]["timestamp"] == 1_700_000_000_000_000
    assert found["run"]["duration"] == 250_000
    assert found["run"]["localEndpoint"] == {"serviceName": "worker"}
    assert found["call"]["localEndpoint"] == {"serviceName": "driver"}
    tags = found["run"]["tags"]
    assert {key: tags[key] for key in ("text", "number", "yes")} == {"text": "é", "number": "7", "yes": "true"}
    assert (tags["otel.library.name"], tags["otel.library.version"]) == ("lib", "1.2")


def documents(text: str) -> list[Any]:
    """JSON objects, one after the other."""
    found = []
    while text.strip():
        item, end = json.JSONDecoder().raw_decode(text.lstrip())
        found.append(item)
        text = text.lstrip()[end:]
    return found


def test_console_writes_to_its_file(make: Made, tmp_path: Path) -> None:
    """Private, appended to, and values that JSON has no form for are no obstacle."""
    path = tmp_path / "console.log"
    for first in (1, 3):
        sink = make("console", str(path))
        deliver(sink, [Batch(resource("a"), SCOPE, [span(first, 9, data="\udcff"), span(first + 1, raw=b"\x00")])])
        sink.close()
    assert path.stat().st_mode & 0o777 == 0o600
    found = documents(path.read_text())
    assert [item["name"] for item in found] == ["1", "2", "3", "4"]
    assert found[0]["parent_id"] == f"0x{9:016x}"
    assert found[0]["attributes"] == {"data": "?"}
    assert found[1]["attributes"] == {"raw": "b'\\x00'"}
    assert found[1]["context"] == {"trace_id": f"0x{99:032x}", "span_id": f"0x{2:016x}"}


def test_console_writes_to_standard_output(make: Made, capsys: pytest.CaptureFixture[str]) -> None:
    sink = make("console")
    deliver(sink, [batch(1, 2)])
    sink.close()
    assert [item["name"] for item in documents(capsys.readouterr().out)] == ["1", "2"]


@pytest.mark.parametrize("plant", ["link", "pipe", "folder"])
def test_console_writes_to_nothing_but_a_file(plant: str, make: Made, tmp_path: Path) -> None:
    import os

    path = tmp_path / "console.log"
    if plant == "link":
        path.symlink_to(tmp_path / "victim")
    elif plant == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(DeliveryError, match="cannot write spans to"):
        make("console", str(path))
    assert not (tmp_path / "victim").exists()
