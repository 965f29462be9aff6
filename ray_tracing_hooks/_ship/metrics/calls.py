"""Measures calls by their two encoded spans, and decodes only the parts that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import CONSUMER, ERROR, PRODUCER, Span, decode_scope, decode_span
from ray_tracing_hooks._formats.encoded_span.encode import IDS, SPAN_ID
from ray_tracing_hooks._formats.encoded_span.read import call, key_of_attribute, own_part
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._ship.metrics.totals import AnyHistogram, Attributes, Count, Totals
from ray_tracing_hooks._ship.sink import Batch

_MOST_SUBMISSIONS, _MOST_EXECUTIONS = 65_536, 8_192
"""How many are remembered at least until the other span of the call comes. Executions wait for submissions that are
read a moment later, submissions for executions that may start much later."""

_MOST_SITES = 10_000
_LONGEST_TEXT = 255

T = TypeVar("T")

_ERROR_TYPE = key_of_attribute(names.ERROR_TYPE)
_OF_INTEREST = (key_of_attribute(names.RAY_SUBMIT_TIME), key_of_attribute(names.RAY_ATTEMPT), _ERROR_TYPE)

_NOT_COUNTED = (
    encode.attribute(names.RAY_SAMPLING_REASON, "error"),
    encode.attribute(names.RAY_SAMPLING_REASON, "slow"),
    encode.attribute(names.RAY_NEVER_ENDED, True),
)
"""How the encodings of spans end that are not counted: those of traces that were not sampled are not representative,
and of those whose end was lost neither the duration nor the result is known."""


class Calls:
    """Aggregates the spans of calls. Other spans are ignored.

    So are those of traces that were not sampled, and those whose end was lost. ``exemplars`` says whether exemplars are
    recorded.
    """

    def __init__(self, totals: Totals, *, exemplars: bool) -> None:
        self._totals = totals
        self._exemplars = exemplars
        self._sites: dict[int, dict[bytes, _Site | None]] = {}
        self._submissions: _Recent[int] = _Recent(_MOST_SUBMISSIONS)
        self._executions: _Recent[tuple[_Site, int, int, bytes | None]] = _Recent(_MOST_EXECUTIONS)

    def read(self, batches: Sequence[Batch]) -> int:
        """Add these spans to the totals; returns how many of them cannot be decoded."""
        bad = 0
        for batch in batches:
            if not _is_ours(batch.scope):
                continue
            resource = self._totals.resource(batch.resource)
            sites = self._sites.setdefault(resource, {})
            if len(sites) > _MOST_SITES:
                sites.clear()
            for span in batch.spans:
                if span.endswith(_NOT_COUNTED):
                    continue
                try:
                    self._span(resource, sites, span)
                except Exception:  # noqa: BLE001  the portion must not be retried and counted twice
                    bad += 1
            self._totals.changes += 1
        return bad

    def _span(self, resource: int, sites: dict[bytes, _Site | None], span: bytes) -> None:
        found = call(span)
        if found is None:
            self._decoded(resource, span)
            return
        parent_id, start, end, shared, shared_end = found
        try:
            site = sites[shared]
        except KeyError:
            site = sites[shared] = self._site(resource, decode_span(shared))
        if site is None:
            return
        if site.kind == CONSUMER:
            own = own_part(span, shared_end, _OF_INTEREST) if parent_id and end < 0 else None
            if own is None:
                self._decoded(resource, span)
                return
            end, attributes, failed = own
            self._executed(site, parent_id, start, end, attributes, span[IDS], failed=failed)
        elif end >= 0 and _ERROR_TYPE not in span:
            self._submitted(site, span[SPAN_ID], start, end, None, span[IDS])
        else:
            self._decoded(resource, span)

    def _decoded(self, resource: int, span: bytes) -> None:
        """The same for a span with another layout, such as one with a trace state."""
        found = decode_span(span)
        site = self._site(resource, found)
        if site is None:
            return
        start, end, attributes, failed = found.start_ns, found.end_ns, found.attributes, found.status_code == ERROR
        if site.kind == PRODUCER:
            self._submitted(site, found.span_id, start, end, _error(attributes, failed=failed), span[IDS])
        else:
            self._executed(site, found.parent_span_id, start, end, attributes, span[IDS], failed=failed)

    def _submitted(self, site: _Site, span_id: bytes, start: int, end: int, error: str | None, identity: bytes) -> None:
        site.duration(error).record(end - start if end > start else 0, end, identity if self._exemplars else None)
        if 0 < end < self._totals.start_ns:
            self._totals.includes(end)
        waiting = self._executions.take(span_id)
        if waiting is not None:
            executed, began, ended, example = waiting
            executed.queue_time().record(max(0, began - start), ended, example)
        elif error is None:
            self._submissions.put(span_id, start)

    def _executed(
        self,
        site: _Site,
        parent_id: bytes,
        start: int,
        end: int,
        attributes: Mapping[str, Any],
        identity: bytes,
        *,
        failed: bool,
    ) -> None:
        example = identity if self._exemplars else None
        error = _error(attributes, failed=failed) if attributes or failed else None
        site.duration(error).record(end - start if end > start else 0, end, example)
        if 0 < end < self._totals.start_ns:
            self._totals.includes(end)
        submitted = self._submissions.take(parent_id)
        if attributes:
            if isinstance(attributes.get(names.RAY_ATTEMPT), int):
                # Since its submission, the call has not only waited, but also run.
                site.retries().add()
                return
            submit_time = attributes.get(names.RAY_SUBMIT_TIME)
            if isinstance(submit_time, int):
                submitted = submit_time
        if submitted is not None:
            # Negative if the clocks of two nodes differ.
            site.queue_time().record(start - submitted if start > submitted else 0, end, example)
        elif parent_id:
            self._executions.put(parent_id, (site, start, end, example))

    def _site(self, resource: int, span: Span) -> _Site | None:
        """The site of a call; ``span`` may be just the part that all calls of a function share."""
        attributes = span.attributes
        if span.kind not in {PRODUCER, CONSUMER} or names.RAY_FUNCTION not in attributes:
            return None
        keys = (names.RAY_FUNCTION, names.RAY_ACTOR_CLASS, names.RAY_ACTOR_METHOD)
        called = tuple((key, _text(attributes[key])) for key in keys if key in attributes)
        return _Site(self._totals, resource, span.kind, called)


class _Site:
    """The submissions, or the executions, of one function."""

    __slots__ = ("_called", "_durations", "_metric", "_queue_time", "_resource", "_totals", "kind")

    def __init__(self, totals: Totals, resource: int, kind: int, called: Attributes) -> None:
        self.kind = kind
        self._totals = totals
        self._resource = resource
        self._called = called
        self._metric = names.EXECUTION_DURATION if kind == CONSUMER else names.SUBMISSION_DURATION
        self._durations: dict[str | None, AnyHistogram] = {}
        self._queue_time: AnyHistogram | None = None

    def duration(self, error: str | None) -> AnyHistogram:
        found = self._durations.get(error)
        if found is None:
            attributes = self._called if error is None else (*self._called, (names.ERROR_TYPE, error))
            found = self._totals.histogram(self._resource, self._metric, attributes)
            if len(self._durations) < 100:  # names of errors may be unbounded
                self._durations[error] = found
        return found

    def queue_time(self) -> AnyHistogram:
        found = self._queue_time
        if found is None:
            found = self._totals.histogram(self._resource, names.EXECUTION_QUEUE_TIME, self._called)
            self._queue_time = found
        return found

    def retries(self) -> Count:
        return self._totals.count(self._resource, names.EXECUTION_RETRIES, self._called)


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
