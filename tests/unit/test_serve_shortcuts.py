"""What is made cheaper of Ray Serve's work comes to the same."""

from __future__ import annotations

import sys
import traceback
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ray.util.metrics import Counter, Metric

from ray_tracing_hooks._ray.serve import shortcuts
from ray_tracing_hooks._ray.serve.shortcuts import Uuid


@given(st.integers(min_value=0, max_value=(1 << 128) - 1))
@example(0)
@example((1 << 128) - 1)
def test_the_text_of_a_random_id_is_that_of_the_module(number: int) -> None:
    assert str(Uuid(uuid).UUID(int=number, version=4)) == str(uuid.UUID(int=number, version=4))


def test_everything_else_is_left_to_the_module() -> None:
    ours = Uuid(uuid)
    text = "12345678-1234-4678-9234-567812345678"
    assert ours.UUID(text) == uuid.UUID(text)
    assert ours.UUID(int=5) == uuid.UUID(int=5)
    assert ours.UUID(int=5, version=1) == uuid.UUID(int=5, version=1)
    assert ours.UUID(bytes=bytes(16), version=4) == uuid.UUID(bytes=bytes(16), version=4)
    assert ours.NAMESPACE_DNS is uuid.NAMESPACE_DNS
    for number in (-1, 1 << 128):
        with pytest.raises(ValueError, match="128"):
            ours.UUID(int=number, version=4)


def test_tags_of_a_metric_that_are_missing_are_told_as_ray_tells_them() -> None:
    counter = Counter("counter", tag_keys=("route", "method"))
    check = shortcuts._validate_tags(Metric._validate_tags)
    check(counter, {"route": "/", "method": "GET", "further": ""})
    check(Counter("another"), {})
    for tags in ({}, {"method": "GET"}):
        with pytest.raises(ValueError, match="Missing value for tag key") as ours:
            check(counter, tags)
        with pytest.raises(ValueError, match="Missing value for tag key") as theirs:
            Metric._validate_tags(counter, tags)
        assert str(ours.value) == str(theirs.value)
        if sys.version_info >= (3, 11):  # before, a frame cannot be hidden
            assert len(traceback.extract_tb(ours.tb)) == len(traceback.extract_tb(theirs.tb))
