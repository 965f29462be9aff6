"""The stage that counts spans for metrics of calls, in parallel with the deliveries of the spans.

It measures calls by their two encoded spans, and decodes only the parts that it needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, Meter
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import CONSUMER, ERROR, PRODUCER, Span, decode_scope, decode_span
from ray_tracing_hooks._formats.encoded_span.encode import IDS, SPAN_ID, TRACE_ID
from ray_tracing_hooks._formats.encoded_span.read import call, key_of_attribute, own_part
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._ship.folder import FolderSnapshot
from ray_tracing_hooks._ship.metrics.provider import Metrics, counter, histogram
from ray_tracing_hooks._ship.sink import Batch
from ray_tracing_hooks._ship.stage import Stage, StageContext

_MOST_SUBMISSIONS, _MOST_EXECUTIONS = 65_536, 8_192
"""How many are remembered at least until the other span of the call comes. Executions wait for submissions that are
read a moment later, submissions for executions that may start much later."""

_MOST_SITES = 10_000
_LONGEST_TEXT = 255
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)

T = TypeVar("T")

_ERROR_TYPE = key_of_attribute(names.ERROR_TYPE)
_OF_INTEREST = (key_of_attribute(names.RAY_SUBMIT_TIME), key_of_attribute(names.RAY_ATTEMPT), _ERROR_TYPE)

_OF_GENERATION = key_of_attribute(names.GEN_AI_PROVIDER)
_ENGINES = ("vllm", "sglang")
"""A program may set the same attributes on spans of its own, and on those of its calls."""

_NOT_COUNTED = (
    encode.attribute(names.RAY_SAMPLING_REASON, "error"),
    encode.attribute(names.RAY_SAMPLING_REASON, "slow"),
    encode.attribute(names.RAY_NEVER_ENDED, True),
)
"""How the encodings of spans end that are not counted: those of traces that were not sampled are not representative,
and of those whose end was lost neither the duration nor the result is known."""


class CallMeter:
    """Records the spans of calls with the instruments of the meter of their resource. Other spans are ignored.

    So are those of traces that were not sampled, and those whose end was lost.
    """

    def __init__(self, meter: Callable[[bytes], Meter]) -> None:
        self._meter = meter
        self._instruments: dict[Meter, _Instruments] = {}
        self._unrecorded: list[_Series] = []
        self._submissions: _Recent[int] = _Recent(_MOST_SUBMISSIONS)
        self._executions: _Recent[tuple[_Site, int, bytes]] = _Recent(_MOST_EXECUTIONS)

    def read(self, batches: Sequence[Batch]) -> int:
        """Record these spans; returns how many of them cannot be decoded."""
        bad = 0
        for batch in batches:
            if not _is_ours(batch.scope):
                continue
            meter = self._meter(batch.resource)
            found = self._instruments.get(meter)
            if found is None:
                found = self._instruments[meter] = _Instruments(meter, self._unrecorded)
            if len(found.sites) > _MOST_SITES:
                found.sites.clear()
            for span in batch.spans:
                if span.endswith(_NOT_COUNTED):
                    continue
                try:
                    self._span(found, span)
                except Exception:  # noqa: BLE001  the portion must not be retried and counted twice
                    bad += 1
        for series in self._unrecorded:
            series.record()
        self._unrecorded.clear()
        return bad

    def _span(self, instruments: _Instruments, span: bytes) -> None:
        if _OF_GENERATION in span:
            decoded = decode_span(span)
            if decoded.kind not in (PRODUCER, CONSUMER):
                if decoded.attributes.get(names.GEN_AI_PROVIDER) in _ENGINES:
                    _generated(instruments, decoded, span[IDS])
                return
        found = call(span)
        if found is None:
            self._decoded(instruments, span)
            return
        parent_id, start, end, shared, shared_end = found
        try:
            site = instruments.sites[shared]
        except KeyError:
            site = instruments.sites[shared] = instruments.site(decode_span(shared))
        if site is None:
            return
        if site.kind == CONSUMER:
            own = own_part(span, shared_end, _OF_INTEREST) if parent_id and end < 0 else None
            if own is None:
                self._decoded(instruments, span)
                return
            end, attributes, failed = own
            self._executed(site, parent_id, start, end, attributes, span[IDS], failed=failed)
        elif end >= 0 and _ERROR_TYPE not in span:
            self._submitted(site, span[SPAN_ID], start, end, None, span[IDS])
        else:
            self._decoded(instruments, span)

    def _decoded(self, instruments: _Instruments, span: bytes) -> None:
        """The same for a span with another layout, such as one with a trace state."""
        found = decode_span(span)
        site = instruments.site(found)
        if site is None:
            return
        start, end, attributes, failed = found.start_ns, found.end_ns, found.attributes, found.status_code == ERROR
        if site.kind == PRODUCER:
            self._submitted(site, found.span_id, start, end, _error(attributes, failed=failed), span[IDS])
        else:
            self._executed(site, found.parent_span_id, start, end, attributes, span[IDS], failed=failed)

    def _submitted(self, site: _Site, span_id: bytes, start: int, end: int, error: str | None, ids: bytes) -> None:
        site.duration(error).add(end - start if end > start else 0, ids)
        waiting = self._executions.take(span_id)
        if waiting is not None:
            executed, began, its_ids = waiting
            executed.queue_time.add(max(0, began - start), its_ids)
        elif error is None:
            self._submissions.put(span_id, start)

    def _executed(
        self,
        site: _Site,
        parent_id: bytes,
        start: int,
        end: int,
        attributes: Mapping[str, Any],
        ids: bytes,
        *,
        failed: bool,
    ) -> None:
        error = _error(attributes, failed=failed) if attributes or failed else None
        site.duration(error).add(end - start if end > start else 0, ids)
        submitted = self._submissions.take(parent_id)
        if attributes:
            if isinstance(attributes.get(names.RAY_ATTEMPT), int):
                # Since its submission, the call has not only waited, but also run.
                site.retry()
                return
            submit_time = attributes.get(names.RAY_SUBMIT_TIME)
            if isinstance(submit_time, int):
                submitted = submit_time
        if submitted is not None:
            # Negative if the clocks of two nodes differ.
            site.queue_time.add(start - submitted if start > submitted else 0, ids)
        elif parent_id:
            self._executions.put(parent_id, (site, start, ids))


class _Instruments:
    """The instruments of one meter, and the call sites that use them. ``unrecorded`` gets series with new values."""

    def __init__(self, meter: Meter, unrecorded: list[_Series]) -> None:
        self.executions = histogram(meter, names.EXECUTION_DURATION)
        self.queue_times = histogram(meter, names.EXECUTION_QUEUE_TIME)
        self.retries = counter(meter, names.EXECUTION_RETRIES)
        self.submissions = histogram(meter, names.SUBMISSION_DURATION)
        self.generations = histogram(meter, names.GENERATION_DURATION)
        self.first_tokens = histogram(meter, names.GENERATION_FIRST_TOKEN)
        self.token_times = histogram(meter, names.GENERATION_TOKEN_TIME)
        self.unrecorded = unrecorded
        self.sites: dict[bytes, _Site | None] = {}

    def site(self, span: Span) -> _Site | None:
        """The site of a call; ``span`` may be just the part that all calls of a function share."""
        attributes = span.attributes
        if span.kind not in {PRODUCER, CONSUMER} or names.RAY_FUNCTION not in attributes:
            return None
        keys = (names.RAY_FUNCTION, names.RAY_ACTOR_CLASS, names.RAY_ACTOR_METHOD)
        return _Site(self, span.kind, {key: _text(attributes[key]) for key in keys if key in attributes})


def _generated(instruments: _Instruments, span: Span, ids: bytes) -> None:
    """Record a generation. There are few of them, each with many tokens."""
    attributes = span.attributes
    if names.GEN_AI_OPERATION not in attributes:
        return  # the prefill for another engine, which has the generation
    about = {key: _text(attributes[key]) for key in names.GENERATION_FIRST_TOKEN.attributes if key in attributes}
    error = _error(attributes, failed=span.status_code == ERROR)
    found = [
        (instruments.generations, (span.end_ns - span.start_ns) / 1e9),
        (instruments.first_tokens, attributes.get(names.GEN_AI_FIRST_CHUNK)),
    ]
    others = (attributes.get(names.GEN_AI_OUTPUT_TOKENS) or attributes.get(names.RAY_LLM_OUTPUT_TOKENS) or 0) - 1
    if others > 0 and attributes.get(names.GEN_AI_CHOICES, 1) == 1 and names.GEN_AI_DECODE_TIME in attributes:
        found.append((instruments.token_times, attributes[names.GEN_AI_DECODE_TIME] / others))
    for durations, seconds in found:
        if seconds is not None:
            is_failed = durations is instruments.generations and error is not None
            attributes = {**about, names.ERROR_TYPE: str(error)} if is_failed else about
            _Series(durations, attributes, instruments.unrecorded).add(max(0, int(seconds * 1e9)), ids)


class _Site:
    """The submissions, or the executions, of one function."""

    __slots__ = ("_called", "_durations", "_instruments", "kind", "queue_time")

    def __init__(self, instruments: _Instruments, kind: int, called: Mapping[str, str]) -> None:
        self.kind = kind
        self.queue_time = _Series(instruments.queue_times, called, instruments.unrecorded)
        self._instruments = instruments
        self._called = called
        self._durations: dict[str | None, _Series] = {}

    def duration(self, error: str | None) -> _Series:
        found = self._durations.get(error)
        if found is None:
            attributes = self._called if error is None else {**self._called, names.ERROR_TYPE: error}
            durations = self._instruments.executions if self.kind == CONSUMER else self._instruments.submissions
            found = _Series(durations, attributes, self._instruments.unrecorded)
            if len(self._durations) < 100:  # names of errors may be unbounded
                self._durations[error] = found
        return found

    def retry(self) -> None:
        self._instruments.retries.add(1, self._called)


class _Series:
    """The durations of one portion of spans with the same attributes: the longest becomes an exemplar.

    The SDK takes one duration at a time, and three times as long for an exemplar.
    """

    __slots__ = ("_attributes", "_histogram", "_ids", "_longest", "_others", "_unrecorded")

    def __init__(self, histogram: Histogram, attributes: Mapping[str, str], unrecorded: list[_Series]) -> None:
        self._histogram = histogram
        self._attributes = attributes
        self._unrecorded = unrecorded
        self._longest = -1
        self._ids = b""
        self._others: list[int] = []

    def add(self, duration: int, ids: bytes) -> None:
        """Add a duration in nanoseconds, of the span with these encoded ids."""
        longest = self._longest
        if duration <= longest:
            self._others.append(duration)
            return
        if longest < 0:
            self._unrecorded.append(self)
        else:
            self._others.append(longest)
        self._longest, self._ids = duration, ids

    def record(self) -> None:
        record, attributes = self._histogram.record, self._attributes
        for duration in self._others:
            record(duration / 1e9, attributes)
        trace_id, span_id = (int.from_bytes(self._ids[part], "big") for part in (TRACE_ID, SPAN_ID))
        span = NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=_SAMPLED))
        record(self._longest / 1e9, attributes, set_span_in_context(span, Context()))
        self._others.clear()
        self._longest = -1


class _Recent(Generic[T]):
    """A bounded cache by span id: it keeps at least the last ``most`` entries, and at most twice as many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._newer: dict[bytes, T] = {}
        self._older: dict[bytes, T] = {}

    def put(self, key: bytes, value: T) -> None:
        if len(self._newer) >= self._most:
            self._older, self._newer = self._newer, {}
        self._newer[key] = value

    def take(self, key: bytes) -> T | None:
        found = self._newer.pop(key, None)
        return found if found is not None else self._older.pop(key, None)


@lru_cache(maxsize=1000)
def _is_ours(scope: bytes) -> bool:
    try:
        return decode_scope(scope).name == names.SCOPE
    except FormatError:
        return False


def _error(attributes: Mapping[str, Any], *, failed: bool) -> str | None:
    """The ``error.type`` of a span with these attributes."""
    found = attributes.get(names.ERROR_TYPE)
    if found is None:
        return names.ERROR_OTHER if failed else None
    return _text(found)


def _text(value: Any) -> str:
    return str(value)[:_LONGEST_TEXT]


_LABEL = "metrics"

_DELAY = 1.0
"""Seconds that spans may wait to be counted."""

_STORE_SECONDS = 1.0
"""Seconds between two stores of the progress while there is more to count."""


class MetricsStage(Stage):
    """Records calls with the instruments of ``metrics``, and has them exported when a flush waits.

    Metrics delay nothing: if they cannot be computed, written or sent, spans are delivered without them.
    """

    def __init__(self, context: StageContext, metrics: Metrics) -> None:
        super().__init__(_LABEL, context, reports=False)
        self._metrics = metrics
        self._calls = CallMeter(metrics.meter)
        self._stored_at = 0.0
        self._has_news = False

    @property
    def delay(self) -> float:
        return _DELAY

    def _turn(self, snapshot: FolderSnapshot, *, flush: bool) -> None:
        if self._is_unstored:
            self._checkpoint()
        before = self._follower.sequences()
        for batches in self._follower.follow(snapshot):
            bad = self._calls.read(batches)
            self._problems.count("{count} spans could not be decoded for metrics and were not counted", bad)
            self.portions += 1
            self._has_news = True
            if time.monotonic() < self._stored_at + _STORE_SECONDS:
                self._is_unstored = True
            else:
                self._checkpoint()
        if self._is_unstored or self._follower.sequences() != before or before.keys() != self.delivered.keys():
            self._checkpoint()
        self.open_processes = self._follower.open_processes()
        if flush and self._has_news:
            self._has_news = False
            self._metrics.flush()

    def _close(self) -> None:
        if self._is_unstored:
            self._checkpoint()

    def _checkpoint(self) -> None:
        self._stored_at = time.monotonic()
        self._store({}, must=False)
