"""The totals so far, by resource, metric and attributes: bounded, and storable as JSON."""

from __future__ import annotations

import base64
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import decode_attribute
from ray_tracing_hooks._formats.encoded_span.tags import ResourceTag
from ray_tracing_hooks._formats.protobuf import FormatError, field, fields
from ray_tracing_hooks._reference import METRICS
from ray_tracing_hooks._ship.metrics.histograms import ExplicitHistogram, ExponentialHistogram

MOST_SERIES = 2000
"""The cardinality limit per metric: the specification's default. Further attributes go to one overflow series."""

_MOST_RESOURCES = 64
_MOST_CACHED = 10_000

_OF_ONE_PROCESS = (
    "service.instance.id",
    names.RESOURCE_WORKER_ID,
    names.RESOURCE_WORKER_READY,
    names.RESOURCE_PROCESS_TYPE,
)
"""Attributes that are left out of the resource of a node, like all of ``process.*``."""

Attributes = tuple[tuple[str, str | bool], ...]

_OVERFLOW: Attributes = ((names.METRIC_OVERFLOW, True),)


class Count:
    """A monotonic counter."""

    __slots__ = ("value",)

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def add(self) -> None:
        self.value += 1

    def state(self) -> int:
        return self.value

    @classmethod
    def restored(cls, stored: Any) -> Count:
        return cls(int(stored))

    def since(self, stored: Any) -> Count:
        return Count(self.value - int(stored))

    def forget_exemplars(self) -> None:
        """A counter has no exemplars."""


Instrument = Count | ExplicitHistogram | ExponentialHistogram
AnyHistogram = ExplicitHistogram | ExponentialHistogram


class Key(NamedTuple):
    """Identifies a series. ``resource`` is an index of :attr:`Totals.resources`."""

    resource: int
    metric: str
    attributes: Attributes


class Totals:
    """All series of a node.

    ``stored`` is the :meth:`state` to continue from. A malformed one, or one with other histograms, is ignored.

    Attributes:
        start_ns: The start time of the totals, in nanoseconds since the epoch.
        is_told: Whether a part of them has been exported: the start time does not change any more then.
        resources: The encoded resources: the attributes that processes of the node have in common, with a
            ``service.instance.id`` of the node, which is stable as long as the state is.
        series: All series.
        changes: Grows with each change of the state.
    """

    def __init__(self, stored: Any = None, *, exponential: bool = False) -> None:
        self._histogram = ExponentialHistogram if exponential else ExplicitHistogram
        self._kinds: dict[str, type[Instrument]] = {
            metric.name: Count if metric.instrument == "counter" else self._histogram
            for metric in METRICS
            if metric.instrument != "gauge"
        }
        self._begin()
        if stored:
            try:
                self._restore(stored)
            except (TypeError, ValueError, KeyError, AttributeError, IndexError):
                self._begin()

    def _begin(self) -> None:
        self.start_ns = time.time_ns()
        self.is_told = False
        self._instance = str(uuid.uuid4())
        self.resources: list[bytes] = []
        self.series: dict[Key, Instrument] = {}
        self.changes = 0
        self._places: dict[bytes, int] = {}
        self._sizes: Counter[str] = Counter()

    def resource(self, encoded: bytes) -> int:
        """The index of the node's resource for a process with this encoded resource."""
        place = self._places.get(encoded)
        if place is None:
            if len(self._places) > _MOST_CACHED:
                self._places.clear()
            place = self._places[encoded] = self._place(self._of_node(encoded))
        return place

    def includes(self, time_ns: int) -> None:
        """Move the start time back if needed: this span may have ended before counting began."""
        if not self.is_told:
            self.start_ns = min(self.start_ns, time_ns)

    def histogram(self, resource: int, metric: str, attributes: Attributes) -> AnyHistogram:
        found = self._find(Key(resource, metric, attributes))
        assert not isinstance(found, Count)
        return found

    def count(self, resource: int, metric: str, attributes: Attributes) -> Count:
        found = self._find(Key(resource, metric, attributes))
        assert isinstance(found, Count)
        return found

    def state(self) -> Mapping[str, Any]:
        """Everything but the exemplars, as JSON."""
        return {
            "start": self.start_ns,
            "told": self.is_told,
            "instance": self._instance,
            "histogram": self._histogram.__name__,
            "resources": [base64.b64encode(resource).decode() for resource in self.resources],
            "series": rows(self.marks()),
        }

    def marks(self) -> dict[Key, Any]:
        """The state of each series, for computing deltas later."""
        return {key: instrument.state() for key, instrument in self.series.items()}

    def _restore(self, stored: Mapping[str, Any]) -> None:
        if stored["histogram"] != self._histogram.__name__:
            return
        self.start_ns = int(stored["start"])
        self.is_told = bool(stored["told"])
        self._instance = str(uuid.UUID(stored["instance"]))
        self.resources = [base64.b64decode(resource) for resource in stored["resources"]]
        for key, state in from_rows(stored["series"]).items():
            if key.metric in self._kinds and 0 <= key.resource < len(self.resources):
                self.series[key] = self._kinds[key.metric].restored(state)
                self._sizes[key.metric] += 1

    def _find(self, key: Key) -> Instrument:
        if key.resource < 0:
            key = Key(0, key.metric, _OVERFLOW)
        found = self.series.get(key)
        if found is None:
            if self._sizes[key.metric] >= MOST_SERIES and key.attributes is not _OVERFLOW:
                return self._find(key._replace(attributes=_OVERFLOW))
            found = self.series[key] = self._kinds[key.metric]()
            self._sizes[key.metric] += 1
        return found

    def _place(self, resource: bytes) -> int:
        if resource in self.resources:
            return self.resources.index(resource)
        if len(self.resources) >= _MOST_RESOURCES:
            return -1
        self.resources.append(resource)
        return len(self.resources) - 1

    def _of_node(self, encoded: bytes) -> bytes:
        try:
            kept = [
                value
                for tag, value in fields(encoded)
                if tag == ResourceTag.ATTRIBUTES and not _is_of_one_process(value)
            ]
        except FormatError:
            kept = []
        instance = encode.resource({"service.instance.id": self._instance})
        return b"".join((instance, *(field(ResourceTag.ATTRIBUTES, attribute) for attribute in kept)))


def _is_of_one_process(attribute: bytes) -> bool:
    key, _ = decode_attribute(attribute)
    return key in _OF_ONE_PROCESS or key.startswith("process.")


def rows(marks: Mapping[Key, Any]) -> list[list[Any]]:
    """The states of series as JSON."""
    return [[key.resource, key.metric, [list(pair) for pair in key.attributes], state] for key, state in marks.items()]


def from_rows(stored: Any) -> dict[Key, Any]:
    """The reverse of :func:`rows`. Raises TypeError or ValueError for malformed input."""
    marks = {}
    for resource, metric, attributes, state in stored:
        marks[Key(int(resource), str(metric), tuple((str(key), value) for key, value in attributes))] = state
    return marks
