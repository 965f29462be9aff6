"""Exporters that are installed as OpenTelemetry entry points, by name: ``zipkin``, ``console``, a vendor's.

The names are those of the group ``opentelemetry_traces_exporter``, as in ``OTEL_TRACES_EXPORTER``. An exporter is
created without arguments, as in the SDK, and reads its variables from the environment of this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, takewhile
from typing import IO, TYPE_CHECKING, TypeVar

from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._safety.guard import SettingError, describe
from ray_tracing_hooks._safety.private import open_file
from ray_tracing_hooks._settings import otel
from ray_tracing_hooks._settings.otel import import_sdk
from ray_tracing_hooks._settings.values import copied
from ray_tracing_hooks._ship.log import Secrets
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, Destination, Sink, SinkContext

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

T = TypeVar("T")

_GROUP = "opentelemetry_traces_exporter"
_ALSO_CALLED = {"zipkin": ("zipkin_json", "zipkin_proto")}
_PACKAGES = {
    "zipkin": "opentelemetry-exporter-zipkin-json",
    "zipkin_json": "opentelemetry-exporter-zipkin-json",
    "zipkin_proto": "opentelemetry-exporter-zipkin-proto-http",
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
}

_MAY_NAME_SERVER = re.compile("ENDPOINT|HOST|PORT$|URL")
"""Names of variables of which some exporter may read its server."""

_DELAY = 1.0
_MOST_SPANS = 512
_TRIES = 5
"""How often a suspected bad span is exported alone before it is given up."""

_SHUTDOWN = 1.0
"""Seconds that an exporter has to shut down. Official ones may take thirty, with nothing left to deliver."""


def names() -> tuple[str, ...]:
    """The names of the installed exporters, in alphabetical order."""
    from importlib.metadata import entry_points  # noqa: PLC0415  not needed for our own sinks

    return tuple(sorted(entry_points(group=_GROUP).names))


def is_installed(name: str) -> bool:
    """Whether :func:`make` would find an exporter. It is not imported, so it may still be unusable."""
    return _find(name) is not None


def destination(name: str, plan: ShipPlan, environ: Mapping[str, str]) -> Destination:
    """The destination of this exporter. Its variables are not known here: all that may name a server identify it."""
    text = plan.console_file if name == "console" and plan.console_file is not None else name
    return Destination(
        text, tuple(sorted(item for item in copied(environ).items() if _MAY_NAME_SERVER.search(item[0])))
    )


def make(name: str, context: SinkContext) -> Sink:
    """The sink that passes spans to the exporter of this name.

    ``console`` writes to the plan's ``console_file``, or to standard output. Raises SettingError if the exporter does
    not exist or cannot be created, and DeliveryError if the file is not writable now.
    """
    found = _find(name)
    if found is None:
        hint = f"pip install {_PACKAGES[name]}" if name in _PACKAGES else "pip install the package that provides it"
        raise SettingError(f"no exporter {name!r} is installed; installed are {', '.join(names())}; {hint}")
    import_sdk()  # which the exporter does too
    file = _open(context.plan.console_file) if name == "console" else None
    try:
        exporter = found.load()() if name != "console" else found.load()(out=file or sys.stdout, formatter=_text)
    except BaseException as error:  # panics of exporters in Rust are not Exceptions, and would end the thread
        if file is not None:
            file.close()
        reason = _without_secrets(describe(error), context.environ)
        raise SettingError(f"the exporter {name!r} ({found.value}) cannot be created: {reason}") from error
    return EntryPointSink(name, exporter, context, file)


def _find(name: str) -> EntryPoint | None:
    from importlib.metadata import entry_points  # noqa: PLC0415  as above

    for candidate in (name, *_ALSO_CALLED.get(name, ())):
        for found in entry_points(group=_GROUP, name=candidate):
            return found
    return None


def _open(path: str | None) -> IO[str] | None:
    """Open the console exporter's private file for appending; a link is refused."""
    if path is None:
        return None
    try:
        descriptor = open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    except OSError as error:
        raise DeliveryError(f"cannot write spans to {path!r}: {error.strerror}") from error
    return open(descriptor, "a", encoding="utf-8", errors="backslashreplace")


def _text(span: ReadableSpan) -> str:
    """A span as the console exporter writes it; values that are not JSON-serializable are written as their ``repr``."""
    try:
        return f"{span.to_json()}\n"
    except TypeError:
        context = span.get_span_context()
        ids = {"trace_id": f"0x{context.trace_id:032x}", "span_id": f"0x{context.span_id:016x}"} if context else {}
        parts = {"name": span.name, "context": ids, "attributes": dict(span.attributes or {})}
        return json.dumps(parts, indent=4, default=repr) + "\n"


class EntryPointSink(Sink):
    """Passes spans to an exporter in batches, and identifies those that it never accepts.

    An exporter does not report whether a failure is due to the server or to a span. So a bad span is identified with
    the help of others: it is refused if an export with it failed, the next one without it succeeded, and it then failed
    alone several times: a server that fails at random accepts it in one of these attempts. After two failures in a row,
    everything waits, and batches are halved until some succeed. A bad span without any other one waits too.
    """

    def __init__(self, name: str, exporter: SpanExporter, context: SinkContext, file: IO[str] | None) -> None:
        delay = otel.read("OTEL_BSP_SCHEDULE_DELAY", context.environ, context.problem)
        most = otel.read("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", context.environ, context.problem)
        self.delay = _DELAY if delay is None else float(delay)
        self._most: int = most or _MOST_SPANS
        self._at_once = self._most
        self._name = name
        self._exporter = exporter
        self._environ = context.environ
        self._count = context.count
        self._lose = context.lose
        self._file = file
        self._reasons: dict[str, str] = {}
        self._batches: Sequence[Batch] | None = None
        self._left: deque[ReadableSpan] = deque()
        self._known = 0

    def deliver(self, batches: Sequence[Batch]) -> None:
        if batches is not self._batches:
            self._batches, self._left, self._known = batches, deque(), 0
        if len(batches) > self._known:
            self._left.extend(self._decoded(batches[self._known :]))
            self._known = len(batches)
        self.needs_more_to_judge = False
        suspects: dict[int, int] = {}  # by id, how often they failed alone after others succeeded without them
        failed: list[ReadableSpan] = []  # the spans of the previous attempt, if it failed
        while self._left:
            spans = self._next()
            if not failed and len(self._left) == len(spans) + 1:
                # Do not leave a single last one: if it is bad, another one has to follow it.
                self._left.rotate(1)
                spans = self._next()
            problem = self._export(spans)
            if problem is None:
                for _ in spans:
                    self._left.popleft()
                self._at_once = min(2 * self._at_once, self._most)
                for span in failed:
                    suspects.setdefault(id(span), 0)
                failed = []
            elif len(spans) == 1 and id(spans[0]) in suspects:
                failed = []
                suspects[id(spans[0])] += 1
                if suspects[id(spans[0])] < _TRIES:
                    continue
                self._left.popleft()
                # Losses are counted by text, and an exporter's messages may differ for each span.
                reason = self._reasons.setdefault(problem.partition(":")[0], problem)
                self._lose(f"{{count}} spans were refused by the exporter {self._name!r}: {reason}", 1)
            else:
                self._at_once = max(1, len(spans) // 2)
                if failed or len(self._left) == 1:
                    # More spans may show whether the spans or the server are the cause.
                    self.needs_more_to_judge = len(self._left) < self._most
                    raise DeliveryError(f"the exporter {self._name!r} accepts no spans at present: {problem}")
                failed = spans
                if len(spans) == 1:
                    # Try the one at the far end next, and then this one again.
                    self._left.rotate(1)
        self._batches = None

    def close(self) -> None:
        thread = threading.Thread(target=self._shut_down, name=f"shutdown-{self._name}", daemon=True)
        thread.start()
        thread.join(_SHUTDOWN)
        if self._file is not None:
            # Closing flushes the buffer, and may fail again.
            with contextlib.suppress(OSError):
                self._file.close()

    def _shut_down(self) -> None:
        with contextlib.suppress(Exception):
            self._exporter.shutdown()

    def _next(self) -> list[ReadableSpan]:
        """The next batch: spans of one resource, since exporters in the SDK only ever see one."""
        resource = self._left[0].resource
        return list(takewhile(lambda span: span.resource is resource, islice(self._left, self._at_once)))

    def _export(self, spans: Sequence[ReadableSpan]) -> str | None:
        """Export the spans; returns why they were not accepted, or None."""
        from opentelemetry import context  # noqa: PLC0415  loaded with the exporter, like the SDK
        from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415

        # Otherwise an instrumented HTTP client would trace the export. The key has no public name.
        suppressed = context.set_value(context._SUPPRESS_INSTRUMENTATION_KEY, True)  # noqa: SLF001
        token = context.attach(suppressed)
        try:
            result = self._exporter.export(spans)
        except BaseException as error:  # noqa: BLE001  panics of exporters in Rust are not Exceptions
            return _without_secrets(describe(error), self._environ)
        finally:
            context.detach(token)
        # The SDK's processors ignore the result, and some exporters return nothing.
        return "it reported a failure" if result is SpanExportResult.FAILURE else None

    def _decoded(self, batches: Sequence[Batch]) -> Iterator[ReadableSpan]:
        from ray_tracing_hooks._formats.readable import decode  # noqa: PLC0415  imports the SDK

        bad = 0
        for batch in batches:
            resource, scope = self._part(_resource, batch.resource), self._part(_scope, batch.scope)
            for span in batch.spans:
                try:
                    yield decode(span, resource, scope)
                except (ValueError, OverflowError, RecursionError):  # malformed, or not representable in the SDK
                    bad += 1
        self._lose("{count} spans could not be decoded and were skipped", bad)

    def _part(self, decode: Callable[[bytes], T], encoded: bytes) -> T:
        try:
            return decode(encoded)
        except FormatError:
            self._count("{count} resources or scopes could not be decoded, and their spans have none", 1)
            return decode(b"")


@lru_cache(maxsize=1024)
def _resource(encoded: bytes) -> Resource:
    from ray_tracing_hooks._formats import readable  # noqa: PLC0415  as in EntryPointSink._decoded

    return readable.resource(encoded)


@lru_cache(maxsize=1024)
def _scope(encoded: bytes) -> InstrumentationScope:
    from ray_tracing_hooks._formats import readable  # noqa: PLC0415  as above

    return readable.scope(encoded)


_ADDRESS = re.compile(r" (object )?at 0x[0-9a-fA-F]+")


def _without_secrets(text: str, environ: Mapping[str, str]) -> str:
    """The text of an error without credentials, and without memory addresses, so that it is the same each time."""
    # A vendor's exporter may read its credentials from any variable of this process.
    return _ADDRESS.sub("", Secrets(environ, os.environ).mask(text))
