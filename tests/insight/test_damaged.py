"""Recorded runs that are cut and damaged: the commands show what is left of them, and no share of more than all.

``tests/fuzz/damaged_recordings.py`` tries thousands of them.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import hypothesis
import pytest
from mutations import mutated, problems

SMALL = ("bottleneck", "rank_fails", "killed_worker", "failed_trials", "worker_tree")


SEEDS = 10 if hypothesis.settings().max_examples < 100 else 40
"""``make quick`` tries fewer, as it tries fewer examples."""


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_whatever_is_left_of_a_recording_is_shown(first: int, tmp_path: Path) -> None:
    """These seeds do not change, so neither do the recordings."""
    for seed in range(first, first + 10):
        assert list(problems(mutated(Random(seed), SMALL), tmp_path)) == [], seed
