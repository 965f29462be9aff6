"""Histograms of durations that can be stored as JSON, restored, and compared with an earlier state.

Those of OpenTelemetry's SDK support none of this, and take several times as long per value. The semantics are the same:
https://opentelemetry.io/docs/specs/otel/metrics/data-model/. Durations are non-negative whole nanoseconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

BOUNDS = (
    *(0.0005, 0.001, 0.0025),
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(30.0, 60.0, 300.0, 1800.0, 3600.0),
)
"""The upper bounds of explicit buckets, in seconds. Those in the middle are the semantic conventions' advice for
durations (``http.server.request.duration``); tasks can be shorter, and much longer."""

_BOUNDS_NS = tuple(round(bound * 1e9) for bound in BOUNDS)

_MOST_BUCKETS = 160
_FIRST_SCALE = 20
"""The defaults of the specification for exponential histograms."""

_MOST_EXEMPLARS = 20
_NONE_YET = 1 << 63

Exemplar = tuple[int, int, bytes]
"""A value, the end time of its span, and the encoded ids of that span."""


class Histogram:
    """The common base of histograms.

    Attributes:
        sum: The sum of all values.
        exemplars: Some values since :meth:`forget_exemplars`, by slot; a later value replaces that in its slot.
    """

    __slots__ = ("_greatest", "_least", "exemplars", "sum")

    def __init__(self) -> None:
        self.sum = 0
        self._least, self._greatest = _NONE_YET, 0
        self.exemplars: dict[int, Exemplar] = {}

    @property
    def range(self) -> tuple[int, int] | None:
        """The minimum and the maximum. None for a delta, where they are unknown."""
        return None if self._least == _NONE_YET else (self._least, self._greatest)

    def forget_exemplars(self) -> None:
        self.exemplars = {}

    def _common_state(self) -> list[int]:
        return [self.sum, self._least, self._greatest]

    def _restore_common(self, stored: Iterable[Any]) -> None:
        self.sum, self._least, self._greatest = (int(number) for number in stored)


class ExplicitHistogram(Histogram):
    """Counts values in the buckets of :data:`BOUNDS`, which include their upper bounds; the last one has none."""

    __slots__ = ("buckets",)

    def __init__(self) -> None:
        super().__init__()
        self.buckets = [0] * (len(BOUNDS) + 1)

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.buckets)

    def record(self, value: int, time_ns: int, identity: bytes | None) -> None:
        """Count a value. The other arguments are for an :data:`Exemplar`; without ``identity`` none is recorded."""
        self.sum += value
        if value > self._greatest:  # noqa: PLR1730  hot path: a call of max() would double its time
            self._greatest = value
        if value < self._least:  # noqa: PLR1730
            self._least = value
        bucket = bisect_left(_BOUNDS_NS, value)
        self.buckets[bucket] += 1
        if identity is not None:
            self.exemplars[bucket] = (value, time_ns, identity)

    def state(self) -> list[Any]:
        """The state as JSON, without exemplars, for :meth:`restored`."""
        return [*self._common_state(), self.buckets.copy()]

    @classmethod
    def restored(cls, stored: list[Any]) -> ExplicitHistogram:
        """The histogram with this state. Raises TypeError or ValueError if it is malformed."""
        *common, buckets = stored
        histogram = cls()
        histogram._restore_common(common)
        if len(buckets) != len(histogram.buckets):
            raise ValueError("the buckets differ")
        histogram.buckets = [int(count) for count in buckets]
        return histogram

    def since(self, stored: list[Any]) -> ExplicitHistogram:
        """The delta since this state."""
        before, difference = self.restored(stored), ExplicitHistogram()
        difference.sum = self.sum - before.sum
        difference.buckets = [now - then for now, then in zip(self.buckets, before.buckets, strict=True)]
        difference.exemplars = self.exemplars
        return difference


class ExponentialHistogram(Histogram):
    """Counts values in at most 160 buckets, which become coarser as the range of values grows.

    Attributes:
        scale: Bucket ``i`` is for values, in seconds, above ``2 ** (i / 2**scale)`` up to that for ``i + 1``.
        zeros: The number of values that are 0.
        buckets: The counts of all others, by bucket.
    """

    __slots__ = ("_next_exemplar", "buckets", "scale", "zeros")

    def __init__(self) -> None:
        super().__init__()
        self.scale = _FIRST_SCALE
        self.zeros = 0
        self.buckets: dict[int, int] = {}
        self._next_exemplar = 0

    @property
    def count(self) -> int:
        """The number of values."""
        return self.zeros + sum(self.buckets.values())

    def record(self, value: int, time_ns: int, identity: bytes | None) -> None:
        """As :meth:`ExplicitHistogram.record`."""
        self.sum += value
        if value > self._greatest:  # noqa: PLR1730  as in ExplicitHistogram
            self._greatest = value
        if value < self._least:  # noqa: PLR1730
            self._least = value
        if identity is not None:
            self._next_exemplar = (self._next_exemplar + 1) % _MOST_EXEMPLARS
            self.exemplars[self._next_exemplar] = (value, time_ns, identity)
        if not value:
            self.zeros += 1
            return
        bucket = _bucket(value / 1e9, self.scale)
        if bucket not in self.buckets and self.buckets:
            low, high = min(bucket, *self.buckets), max(bucket, *self.buckets)
            steps = 0
            while (high >> steps) - (low >> steps) >= _MOST_BUCKETS:
                steps += 1
            if steps:
                self.coarsen(steps)
                bucket >>= steps
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def state(self) -> list[Any]:
        """As :meth:`ExplicitHistogram.state`."""
        return [*self._common_state(), self.scale, self.zeros, [[*pair] for pair in self.buckets.items()]]

    @classmethod
    def restored(cls, stored: list[Any]) -> ExponentialHistogram:
        """As :meth:`ExplicitHistogram.restored`."""
        *common, scale, zeros, buckets = stored
        histogram = cls()
        histogram._restore_common(common)
        histogram.scale, histogram.zeros = int(scale), int(zeros)
        histogram.buckets = {int(bucket): int(count) for bucket, count in buckets}
        return histogram

    def since(self, stored: list[Any]) -> ExponentialHistogram:
        """As :meth:`ExplicitHistogram.since`."""
        before, difference = self.restored(stored), ExponentialHistogram()
        before.coarsen(before.scale - self.scale)
        difference.sum = self.sum - before.sum
        difference.scale, difference.zeros = self.scale, self.zeros - before.zeros
        left = {bucket: count - before.buckets.get(bucket, 0) for bucket, count in self.buckets.items()}
        difference.buckets = {bucket: count for bucket, count in left.items() if count}
        difference.exemplars = self.exemplars
        return difference

    def dense(self) -> tuple[int, list[int]]:
        """The first bucket, and the counts from there to the last one."""
        if not self.buckets:
            return 0, []
        first, last = min(self.buckets), max(self.buckets)
        return first, [self.buckets.get(bucket, 0) for bucket in range(first, last + 1)]

    def coarsen(self, steps: int) -> None:
        """Merge each ``2 ** steps`` buckets into one."""
        coarser: dict[int, int] = {}
        for bucket, count in self.buckets.items():
            coarser[bucket >> steps] = coarser.get(bucket >> steps, 0) + count
        self.buckets = coarser
        self.scale -= steps


def _bucket(seconds: float, scale: int) -> int:
    """The exponential bucket of a value above 0. A power of two is exactly the upper bound of its bucket."""
    fraction, exponent = math.frexp(seconds)
    if fraction == 0.5:
        exponent -= 1
        return (exponent << scale) - 1 if scale > 0 else (exponent - 1) >> -scale
    if scale > 0:
        return math.floor(math.log2(seconds) * (1 << scale))
    return (exponent - 1) >> -scale
