"""Any installed OpenTelemetry exporter, by the name of its ``opentelemetry_traces_exporter`` entry point."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TextIO

from ray_tracing_hooks._errors import SettingError
from ray_tracing_hooks._formats.wire import FormatError
from ray_tracing_hooks._guard import describe
from ray_tracing_hooks._ship.sinks import Batch, DeliveryError, Surroundings
from ray_tracing_hooks._standard import read

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

_GROUP = "opentelemetry_traces_exporter"
_ALSO = {"zipkin": ("zipkin_json", "zipkin_proto", "zipkin_proto_http")}
"""Names that OTEL_TRACES_EXPORTER has by the specification, and those that Python's packages have given themselves."""

_CHUNK = 512
_DELAY = 1.0
_SHUTDOWN = 2.0
"""Seconds that an exporter has for its shutdown; some wait for half a minute."""


def names() -> tuple[str, ...]:
    """The installed exporters."""
    return tuple(sorted({point.name for point in entry_points(group=_GROUP)}))


def is_installed(name: str) -> bool:
    """Whether there is an exporter of this name."""
    return _find(name) is not None


def make(name: str, surroundings: Surroundings) -> EntryPointSink:
    """The sink of this exporter. Raises SettingError if it is not installed or cannot be made."""
    point = _find(name)
    if point is None:
        package = "opentelemetry-exporter-zipkin-json" if name == "zipkin" else "the package that has it"
        raise SettingError(
            f"there is no exporter {name!r}: installed are {', '.join(names())}; pip install {package} where the workers "
            "run"
        )
    try:
        exporter = point.load()(**_arguments(point.name, surroundings))
    except Exception as error:
        raise SettingError(f"the exporter {name!r} cannot be made: {describe(error)}") from error
    return EntryPointSink(name, exporter, surroundings)


class EntryPointSink:
    """Hands rebuilt ``ReadableSpan`` objects to an exporter.

    An exporter says that it failed, and not whether it will ever work. So what failed comes again, in smaller and
    smaller chunks: a span that fails alone while others get through is given up, and nothing else.
    """

    def __init__(self, name: str, exporter: SpanExporter, surroundings: Surroundings) -> None:
        delay = read("OTEL_BSP_SCHEDULE_DELAY", surroundings.environ, surroundings.problem)
        self.delay: float = _DELAY if delay is None else delay
        self._name = name
        self._exporter = exporter
        self._count = surroundings.count
        self._most: int = read("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", surroundings.environ, surroundings.problem) or _CHUNK
        self._size = self._most
        self._batches: Sequence[Batch] | None = None
        self._spans: deque[ReadableSpan] = deque()
        self._suspects: dict[int, int] = {}
        self._got_through = 0

    def deliver(self, batches: Sequence[Batch]) -> None:
        if batches is not self._batches:
            self._batches = batches
            self._spans = deque(self._rebuilt(batches))
            self._suspects = {}
        while self._spans:
            chunk = [self._spans[index] for index in range(min(self._size, len(self._spans)))]
            reason = self._export(chunk)
            if reason is None:
                self._done(len(chunk))
                self._size = min(2 * self._size, self._most)
                self._got_through += len(chunk)
            elif len(chunk) == 1:
                self._suspect(chunk[0], reason)
            else:
                self._size = len(chunk) // 2
                raise DeliveryError(f"the exporter {self._name!r} failed: {reason}")
        self._batches = None

    def checkpoint(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        ending = threading.Thread(target=self._shut_down, daemon=True)
        ending.start()
        ending.join(_SHUTDOWN)

    def _suspect(self, span: ReadableSpan, reason: str) -> None:
        """A span that failed alone goes to the end; if it fails again after others got through, it is at fault."""
        before = self._suspects.get(id(span))
        self._done(1)
        if before is not None and self._got_through > before:
            self._count(f"{{count}} spans were refused by the exporter {self._name!r} and are lost", 1)
            return
        self._spans.append(span)
        if before is None:
            self._suspects[id(span)] = self._got_through
        raise DeliveryError(f"the exporter {self._name!r} failed: {reason}")

    def _done(self, count: int) -> None:
        for _ in range(count):
            self._spans.popleft()

    def _export(self, chunk: Sequence[ReadableSpan]) -> str | None:
        """What kept the spans from being exported, or None."""
        from opentelemetry import context  # noqa: PLC0415  loaded with the exporter
        from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415

        # An instrumented HTTP client must not make spans of this.
        token = context.attach(context.set_value("suppress_instrumentation", True))  # noqa: FBT003
        try:
            result = self._exporter.export(chunk)
        except Exception as error:  # noqa: BLE001  it is somebody else's code, and the spans come again
            return describe(error)
        finally:
            context.detach(token)
        return None if result is SpanExportResult.SUCCESS else "it does not say why"

    def _rebuilt(self, batches: Sequence[Batch]) -> list[ReadableSpan]:
        from ray_tracing_hooks._sdk.readable import decode  # noqa: PLC0415  imports the SDK

        spans: list[ReadableSpan] = []
        bad = 0
        for batch in batches:
            resource, scope = _resource(batch.resource), _scope(batch.scope)
            for span in batch.spans:
                try:
                    spans.append(decode(span, resource, scope))
                except FormatError:
                    bad += 1
        self._count("{count} spans could not be decoded and were skipped", bad)
        return spans

    def _shut_down(self) -> None:
        try:
            self._exporter.shutdown()
        except Exception:  # noqa: BLE001  as above, and nothing depends on it
            return


def _find(name: str) -> EntryPoint | None:
    for candidate in (name, *_ALSO.get(name, ())):
        for point in entry_points(group=_GROUP, name=candidate):
            return point
    return None


def _arguments(name: str, surroundings: Surroundings) -> dict[str, Any]:
    if name != "console":
        return {}  # exporters read their settings from the environment
    return {"out": _console(surroundings.plan.console_file)}


def _console(path: str | None) -> TextIO:
    if path is None:
        return sys.stdout
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return open(os.open(path, flags, 0o600), "a", encoding="utf-8")


@lru_cache(maxsize=1024)
def _resource(encoded: bytes) -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    from ray_tracing_hooks._sdk import readable  # noqa: PLC0415

    try:
        return readable.resource(encoded)
    except FormatError:
        return Resource({})


@lru_cache(maxsize=1024)
def _scope(encoded: bytes) -> InstrumentationScope:
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

    from ray_tracing_hooks._sdk import readable  # noqa: PLC0415

    try:
        return readable.scope(encoded)
    except FormatError:
        return InstrumentationScope("")
