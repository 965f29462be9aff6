"""Histograms count as those of OpenTelemetry's SDK do, and can be stored and compared besides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import (
    Aggregation,
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)

from ray_tracing_hooks._ship.metrics.histograms import BOUNDS, ExplicitHistogram, ExponentialHistogram

DURATIONS = st.lists(
    st.one_of(
        st.integers(0, 10**4),
        st.integers(0, 10**13),
        st.sampled_from([round(bound * 1e9) for bound in BOUNDS]),
        st.integers(-9, 12).map(lambda power: round(2.0**power * 1e9)),
    ),
    min_size=1,
    max_size=60,
)
KINDS = pytest.mark.parametrize("kind", [ExplicitHistogram, ExponentialHistogram])


def of_sdk(durations: list[int], aggregation: Aggregation) -> Any:
    """The point that the SDK makes of these nanoseconds, in seconds."""
    reader = InMemoryMetricReader()
    views = [View(instrument_name="*", aggregation=aggregation)]
    provider = MeterProvider([reader], views=views, shutdown_on_exit=False)
    histogram = provider.get_meter("test").create_histogram("test")
    for duration in durations:
        histogram.record(duration / 1e9)
    data = reader.get_metrics_data()
    provider.shutdown()
    assert data is not None
    return data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points[0]


def filled(kind: Any, durations: list[int]) -> Any:
    histogram = kind()
    for duration in durations:
        histogram.record(duration, 0, None)
    return histogram


def check_common(ours: Any, theirs: Any) -> None:
    assert ours.count == theirs.count
    assert ours.sum / 1e9 == pytest.approx(theirs.sum)
    assert tuple(value / 1e9 for value in ours.range) == (theirs.min, theirs.max)


def present(first: int, counts: Sequence[int]) -> dict[int, int]:
    """The buckets that hold something."""
    return {first + index: count for index, count in enumerate(counts) if count}


@given(DURATIONS)
def test_explicit_buckets_are_those_of_the_sdk(durations: list[int]) -> None:
    ours = filled(ExplicitHistogram, durations)
    theirs = of_sdk(durations, ExplicitBucketHistogramAggregation(BOUNDS))
    check_common(ours, theirs)
    assert tuple(ours.buckets) == tuple(theirs.bucket_counts)


@given(DURATIONS)
def test_exponential_buckets_are_those_of_the_sdk(durations: list[int]) -> None:
    """At the same scale the same values are in the same buckets. At the finest scales, which only values that are next
    to each other have, a value may be in the one beside: rounding is left open by the specification.
    """
    ours = filled(ExponentialHistogram, durations)
    theirs = of_sdk(durations, ExponentialBucketHistogramAggregation())
    check_common(ours, theirs)
    assert ours.zeros == theirs.zero_count
    assert ours.scale == theirs.scale or not any(durations)
    first, counts = ours.dense()
    if ours.scale <= 10:
        assert present(first, counts) == present(theirs.positive.offset, theirs.positive.bucket_counts)
    assert sum(counts) + ours.zeros == len(durations)


@KINDS
@given(DURATIONS, DURATIONS)
def test_a_stored_histogram_goes_on_as_if_nothing_had_been(kind: Any, before: list[int], after: list[int]) -> None:
    whole = filled(kind, before + after)
    restored = kind.restored(json.loads(json.dumps(filled(kind, before).state())))
    for duration in after:
        restored.record(duration, 0, None)
    assert restored.state() == whole.state()


@KINDS
@given(DURATIONS, DURATIONS)
def test_what_has_come_since_is_what_was_recorded_since(kind: Any, before: list[int], after: list[int]) -> None:
    """Except for the minimum and maximum, which are unknown."""
    histogram = filled(kind, before)
    mark = histogram.state()
    for duration in after:
        histogram.record(duration, 0, None)
    difference, expected = histogram.since(mark), filled(kind, after)
    if kind is ExponentialHistogram:
        expected.coarsen(expected.scale - difference.scale)
    assert (difference.sum, difference.count, difference.buckets) == (expected.sum, expected.count, expected.buckets)
    assert difference.range is None


@KINDS
def test_what_is_no_state_is_refused(kind: Any) -> None:
    for wrong in ([], [1, 2], [1, 2, 3, [1]], ["a", 1, 1, 1, 1, 1], None):
        with pytest.raises((TypeError, ValueError)):
            kind.restored(wrong)


@KINDS
def test_there_are_few_buckets_and_exemplars_however_much_comes(kind: Any) -> None:
    histogram = kind()
    for power in range(200):
        histogram.record(round(1.2**power), power, bytes(28))
    assert len(histogram.buckets) <= 160
    assert len(histogram.exemplars) <= len(BOUNDS) + 1
    histogram.forget_exemplars()
    assert histogram.exemplars == {}
