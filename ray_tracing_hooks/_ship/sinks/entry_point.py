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
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import IO, TYPE_CHECKING

from ray_tracing_hooks._formats import otlp
from ray_tracing_hooks._formats.otlp import Group
from ray_tracing_hooks._safety.guard import SettingError, describe
from ray_tracing_hooks._safety.private import open_file
from ray_tracing_hooks._settings.otel import import_sdk
from ray_tracing_hooks._settings.values import copied
from ray_tracing_hooks._ship.log import Secrets
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import DeliveryError, Destination, Sink, SinkContext
from ray_tracing_hooks._ship.sinks import otlp as otlp_sink
from ray_tracing_hooks._ship.sinks.sending import SendingSink
from ray_tracing_hooks._ship.transport.contract import Refused

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

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

_MOST_SPANS = 512
_ANY_SIZE = 1 << 62

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


class EntryPointSink(SendingSink):
    """Passes spans to an exporter in batches of one resource, since exporters in the SDK only ever see one.

    An exporter does not report whether a failure is due to the server or to a span: each may pass. What it does for no
    spans at all shows nothing, so there are no probes.
    """

    probes = False

    def __init__(self, name: str, exporter: SpanExporter, context: SinkContext, file: IO[str] | None) -> None:
        _, most, delay = otlp_sink.limits(context.environ, context.problem, 0.0)
        super().__init__(context, _Exporting(name, exporter, context.environ), delay)
        self._most = most or _MOST_SPANS
        self._exporter = exporter
        self._file = file
        self._undecodable = 0

    def cut(self, groups: Sequence[Group]) -> Iterable[list[Group]]:
        of_resource: dict[bytes, list[Group]] = {}
        for group in groups:
            of_resource.setdefault(group.resource, []).append(group)
        for found in of_resource.values():
            yield from otlp.cut(found, _ANY_SIZE, self._most)

    def encode(self, groups: Sequence[Group]) -> list[ReadableSpan]:
        from ray_tracing_hooks._formats.readable import decode  # noqa: PLC0415  imports the SDK

        self._undecodable = 0
        spans = []
        for group in groups:
            resource, scope = _resource(group.resource), _scope(group.scope)
            for span in group.spans:
                try:
                    spans.append(decode(span, resource, scope))
                except (ValueError, OverflowError, RecursionError):  # malformed, or not representable in the SDK
                    self._undecodable += 1
        return spans

    def accepted(self, groups: Sequence[Group], answer: bytes) -> None:
        self._lose("{count} spans could not be decoded and were skipped", self._undecodable)

    def on_idle(self) -> None:
        """An exporter cannot be started again."""

    def close(self) -> None:
        thread = threading.Thread(target=self._shut_down, name="shutdown-exporter", daemon=True)
        thread.start()
        thread.join(_SHUTDOWN)
        if self._file is not None:
            # Closing flushes the buffer, and may fail again.
            with contextlib.suppress(OSError):
                self._file.close()

    def _shut_down(self) -> None:
        with contextlib.suppress(Exception):
            self._exporter.shutdown()


class _Exporting:
    """The exporter as a transport of spans."""

    def __init__(self, name: str, exporter: SpanExporter, environ: Mapping[str, str]) -> None:
        self.address = f"the exporter {name!r}"
        self._exporter = exporter
        self._environ = environ

    def send(self, body: Sequence[ReadableSpan]) -> bytes:
        from opentelemetry import context  # noqa: PLC0415  loaded with the exporter, like the SDK
        from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415

        if not body:
            return b""
        # Otherwise an instrumented HTTP client would trace the export. The key has no public name.
        suppressed = context.set_value(context._SUPPRESS_INSTRUMENTATION_KEY, True)  # noqa: SLF001
        token = context.attach(suppressed)
        try:
            result = self._exporter.export(body)
        except BaseException as error:  # panics of exporters in Rust are not Exceptions
            raise Refused(_without_secrets(describe(error), self._environ), transient=True) from error
        finally:
            context.detach(token)
        # The SDK's processors ignore the result, and some exporters return nothing.
        if result is SpanExportResult.FAILURE:
            raise Refused("it reported a failure", transient=True)
        return b""

    def close(self) -> None:
        pass


@lru_cache(maxsize=1024)
def _resource(encoded: bytes) -> Resource:
    from ray_tracing_hooks._formats import readable  # noqa: PLC0415  as in EntryPointSink.encode

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
