"""What has been counted so far, by resource, metric and attributes; bounded, and stored as JSON."""

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
from ray_tracing_hooks._ship.metrics.histograms import ExplicitHistogram, ExponentialHistogram

MOST_SERIES = 2000
"""Of one metric: the specification's default. What comes with further attributes is counted in one series more."""

_MOST_RESOURCES = 64
_MOST_CACHED = 10_000

_OF_ONE_PROCESS = (
    "service.instance.id",
    names.RESOURCE_WORKER_ID,
    names.RESOURCE_WORKER_READY,
    names.RESOURCE_PROCESS_TYPE,
)
"""Attributes that the resource of a node is without, as it is without all of ``process.*``."""

Attributes = tuple[tuple[str, str | bool], ...]

_OVERFLOW: Attributes = ((names.METRIC_OVERFLOW, True),)


class Count:
    """A number that only grows."""

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
        """It has none."""


Instrument = Count | ExplicitHistogram | ExponentialHistogram
AnyHistogram = ExplicitHistogram | ExponentialHistogram


class Key(NamedTuple):
    """What tells one series from all others. ``resource`` is an index of :attr:`Totals.resources`."""

    resource: int
    metric: str
    attributes: Attributes


class Totals:
    """All series of a node.

    ``stored`` is the :meth:`state` to go on from. What is none, or one with other histograms, is left aside.

    Attributes:
        start_ns: The time from which on has been counted, in nanoseconds since the epoch.
        is_told: Whether something of it has been sent or written: from then on the time above stays.
        resources: The encoded resources: what is the same for the processes of a node that say the same of themselves,
            with a ``service.instance.id`` of the node's own, which stays as long as the state does.
        series: All that is counted.
        changes: Grows with each state that is another one; for comparing.
    """

    def __init__(self, stored: Any = None, *, exponential: bool = False) -> None:
        self._histogram = ExponentialHistogram if exponential else ExplicitHistogram
        self._kinds: dict[str, type[Instrument]] = {
            metric.name: Count if metric.instrument == "counter" else self._histogram for metric in names.METRICS
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
        """The index of the node's resource that a process with this encoded one belongs to."""
        place = self._places.get(encoded)
        if place is None:
            if len(self._places) > _MOST_CACHED:
                self._places.clear()
            place = self._places[encoded] = self._place(self._of_node(encoded))
        return place

    def includes(self, time_ns: int) -> None:
        """Something is counted that ended then, which may be before anybody began to count."""
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
        """As JSON, all but the exemplars."""
        return {
            "start": self.start_ns,
            "told": self.is_told,
            "instance": self._instance,
            "histogram": self._histogram.__name__,
            "resources": [base64.b64encode(resource).decode() for resource in self.resources],
            "series": rows(self.marks()),
        }

    def marks(self) -> dict[Key, Any]:
        """The state of each series, to tell later what has come since."""
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
    """As JSON, the states of series."""
    return [[key.resource, key.metric, [list(pair) for pair in key.attributes], state] for key, state in marks.items()]


def from_rows(stored: Any) -> dict[Key, Any]:
    """What :func:`rows` was made of. Raises TypeError or ValueError for something else."""
    marks = {}
    for resource, metric, attributes, state in stored:
        marks[Key(int(resource), str(metric), tuple((str(key), value) for key, value in attributes))] = state
    return marks
