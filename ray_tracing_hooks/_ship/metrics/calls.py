"""What is measured of a call: read from its two encoded spans, of which no more is decoded than that takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import CONSUMER, ERROR, PRODUCER, Span, decode_scope, decode_span
from ray_tracing_hooks._formats.encoded_span.encode import IDS, SPAN_ID
from ray_tracing_hooks._formats.encoded_span.read import call, key_of_attribute, own_part
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._ship.metrics.totals import AnyHistogram, Attributes, Count, Totals
from ray_tracing_hooks._ship.sink import Batch
from ray_tracing_hooks._ship.tail_sampling import policy

_MOST_SUBMISSIONS, _MOST_EXECUTIONS = 65_536, 8_192
"""How many are remembered at least, until the other span of the call comes. Executions wait for submissions that are
read a moment later, submissions for executions that may be far off."""

_MOST_SITES = 10_000
_LONGEST_TEXT = 255

T = TypeVar("T")

_ERROR_TYPE = key_of_attribute(names.ERROR_TYPE)
_OF_INTEREST = (key_of_attribute(names.RAY_SUBMIT_TIME), key_of_attribute(names.RAY_ATTEMPT), _ERROR_TYPE)

_KEPT = (policy.attribute(policy.ERROR), policy.attribute(policy.SLOW))
"""What spans end in of which the others are not there: they say nothing of how many calls there were."""


class Calls:
    """Adds up what the spans of calls say. Other spans are passed over.

    So are those of a trace that was not sampled and was kept. ``exemplars``: whether some are named.
    """

    def __init__(self, totals: Totals, *, exemplars: bool) -> None:
        self._totals = totals
        self._exemplars = exemplars
        self._sites: dict[int, dict[bytes, _Site | None]] = {}
        self._submissions: _Recent[int] = _Recent(_MOST_SUBMISSIONS)
        self._executions: _Recent[tuple[_Site, int, int, bytes | None]] = _Recent(_MOST_EXECUTIONS)

    def read(self, batches: Sequence[Batch]) -> int:
        """Take in what these spans say; how many of them make no sense."""
        bad = 0
        for batch in batches:
            if not _is_ours(batch.scope):
                continue
            resource = self._totals.resource(batch.resource)
            sites = self._sites.setdefault(resource, {})
            if len(sites) > _MOST_SITES:
                sites.clear()
            for span in batch.spans:
                if span.endswith(_KEPT):
                    continue
                try:
                    self._span(resource, sites, span)
                except Exception:  # noqa: BLE001  the portion must not come again, and be counted twice
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
            end, told, failed = own
            self._executed(site, parent_id, start, end, told, span[IDS], failed=failed)
        elif end >= 0 and _ERROR_TYPE not in span:
            self._submitted(site, span[SPAN_ID], start, end, None, span[IDS])
        else:
            self._decoded(resource, span)

    def _decoded(self, resource: int, span: bytes) -> None:
        """The same for a span that is written in another way, such as one with a trace state."""
        found = decode_span(span)
        site = self._site(resource, found)
        if site is None:
            return
        start, end, told, failed = found.start_ns, found.end_ns, found.attributes, found.status_code == ERROR
        if site.kind == PRODUCER:
            self._submitted(site, found.span_id, start, end, _error(told, failed=failed), span[IDS])
        else:
            self._executed(site, found.parent_span_id, start, end, told, span[IDS], failed=failed)

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
        told: Mapping[str, Any],
        identity: bytes,
        *,
        failed: bool,
    ) -> None:
        example = identity if self._exemplars else None
        error = _error(told, failed=failed) if told or failed else None
        site.duration(error).record(end - start if end > start else 0, end, example)
        if 0 < end < self._totals.start_ns:
            self._totals.includes(end)
        submitted = self._submissions.take(parent_id)
        if told:
            if isinstance(told.get(names.RAY_ATTEMPT), int):
                # Since its submission the call has not only waited, but run as well.
                site.retries().add()
                return
            told_time = told.get(names.RAY_SUBMIT_TIME)
            if isinstance(told_time, int):
                submitted = told_time
        if submitted is not None:
            # Less than nothing where the clocks of two nodes differ.
            site.queue_time().record(start - submitted if start > submitted else 0, end, example)
        elif parent_id:
            self._executions.put(parent_id, (site, start, end, example))

    def _site(self, resource: int, span: Span) -> _Site | None:
        """``span`` may be the part of one that is the same for all calls of a function."""
        attributes = span.attributes
        if span.kind not in {PRODUCER, CONSUMER} or names.RAY_FUNCTION not in attributes:
            return None
        keys = (names.RAY_FUNCTION, names.RAY_ACTOR_CLASS, names.RAY_ACTOR_METHOD)
        called = tuple((key, _text(attributes[key])) for key in keys if key in attributes)
        return _Site(self._totals, resource, span.kind, called)


class _Site:
    """The calls of one function, as they are submitted or as they are executed."""

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
            if len(self._durations) < 100:  # by its name an error may be another one each time
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
    """At least the last ``most`` that were put in, and at most twice as many, by the id of a span."""

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


def _error(told: Mapping[str, Any], *, failed: bool) -> str | None:
    """The ``error.type`` of a span with these attributes."""
    found = told.get(names.ERROR_TYPE)
    if found is None:
        return names.ERROR_OTHER if failed else None
    return _text(found)


def _text(value: Any) -> str:
    return str(value)[:_LONGEST_TEXT]
