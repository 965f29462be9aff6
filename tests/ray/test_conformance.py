"""A program does not notice that it is traced: whatever it does with Ray, it sees the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance import LOGS, NAMES, TRAINING, WITH_DATA, WITH_LOGS, check, made_of, recorded
from conftest import Cluster, start_head, stop_head
from support import HOOK

pytestmark = pytest.mark.apart

EVERYTHING = {"RAY_TRACING_RAY": "task,actor,get,wait,put", "RAY_TRACING_LOGS": "ids,otlp"}

COMMON = {"conform_actors", "conform_functions"}
"""What most programs do; the others are run with the slow tests."""


@pytest.fixture
def with_logs(short_tmp: Callable[[], Path]) -> Iterator[Cluster]:
    """A traced cluster that sends drivers what workers print."""
    folder = short_tmp()
    variables = {"RAY_TRACING_LOCAL_DIR": str(folder / "spans"), **LOGS}
    head, address = start_head(folder, f"--tracing-startup-hook={HOOK}", **variables)
    yield Cluster(address, folder / "spans")
    stop_head(head)


@pytest.mark.parametrize(
    "program",
    [
        name if name in COMMON else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted({*NAMES} - WITH_LOGS - WITH_DATA)
    ],
)
def test_every_scenario_comes_to_the_same(program: str, cluster: Cluster, short_tmp: Callable[[], Path]) -> None:
    check(program, cluster.run(program, **EVERYTHING), cluster, short_tmp(), **EVERYTHING)


@pytest.mark.slow  # each needs a cluster of its own
@pytest.mark.parametrize("program", sorted(WITH_LOGS))
def test_every_scenario_comes_to_the_same_with_logs(
    program: str, with_logs: Cluster, short_tmp: Callable[[], Path]
) -> None:
    check(program, with_logs.run(program, **EVERYTHING), with_logs, short_tmp(), **EVERYTHING)


@pytest.mark.parametrize("program", [*NAMES, *TRAINING])
def test_the_recording_of_a_program_is_of_the_program_as_it_is(program: str) -> None:
    """``record.py`` makes recordings, and compares them with untraced clusters."""
    known, made = recorded(program), made_of(program)
    assert known["versions"], "it is not recorded"
    if known["versions"] != made["versions"]:
        pytest.skip("recorded with other versions of Ray or of Python")
    assert known["sources"] == made["sources"], "the program has changed: record it again"
