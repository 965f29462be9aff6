"""What is replaced in Ray's libraries, but Serve and Data, is like the original, once, and can be put back."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from support import run_program, with_training

IS_FIRST = tuple(map(int, ray.__version__.split(".")[:2])) >= (2, 60)
"""Ray 2.60 has all that is instrumented."""

pytestmark = pytest.mark.slow(older_rays=True)  # it imports Ray Train, Tune and RLlib


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    result: dict[str, Any] = run_program("../inside/library_patches", **with_training()).result
    return result


def test_all_places_are_there(found: dict[str, Any]) -> None:
    """In the Ray that this package is made for. In older ones, what is not there is left out."""
    if IS_FIRST:
        assert found["missing"] == found["lost"] == []
        assert len(found["places"]) >= 35
    else:
        assert len(found["places"]) >= 10


def test_each_is_replaced_once(found: dict[str, Any]) -> None:
    assert found["not wrapped"] == []
    assert found["wrapped twice"] == []


def test_signatures_and_pickles_stay_the_same(found: dict[str, Any]) -> None:
    assert found["signatures"] == []
    assert found["pickles"] == []


def test_all_are_put_back(found: dict[str, Any]) -> None:
    assert found["not put back"] == []
