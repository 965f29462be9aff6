"""A program does not notice that it is traced: whatever it does with Ray, it sees the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance import LOGS, NAMES, NOT_RECORDED, TRAINING, WITH_DATA, WITH_LOGS, check, made_of, recorded
from conftest import Cluster, traced
from support import PROGRAMS

pytestmark = pytest.mark.apart

EVERYTHING = {"RAY_TRACING_RAY": "task,actor,get,wait,put", "RAY_TRACING_LOGS": "ids,otlp"}

COMMON = ("conform_actors", "conform_functions")
"""What most programs do; the other programs are run with the slow tests."""

LATER = NOT_RECORDED | {
    "classes_of_every_kind",
    "creations_that_fail",
    "detached_and_used_by_another_driver",
    "ended_on_purpose",
    "killed",
    "methods_retried",
    "named",
    "out_of_scope",
    "restarted",
}
"""Scenarios of common programs that run with the slow tests too: those that need an untraced cluster to compare with,
and actors of many kinds and their ends, which take many processes. What a program gets of an actor that ends is in
test_calls.py too.
"""


def scenarios(program: str, *, later: bool) -> str:
    found = re.findall(r"^@scenario\ndef (\w+)", (PROGRAMS / f"{program}.py").read_text(), re.MULTILINE)
    return ",".join(name for name in found if (name in LATER) == later)


@pytest.fixture
def with_logs(short_tmp: Callable[[], Path]) -> Iterator[Cluster]:
    """A traced cluster that sends drivers what workers print."""
    with traced(short_tmp(), own=LOGS) as found:
        yield found


@pytest.mark.parametrize("program", COMMON)
def test_common_scenarios_come_to_the_same(program: str, cluster: Cluster, short_tmp: Callable[[], Path]) -> None:
    run = cluster.run(program, **EVERYTHING, RTH_ONLY=scenarios(program, later=False))
    check(program, run, cluster, short_tmp(), **EVERYTHING)


@pytest.mark.slow  # many processes
@pytest.mark.parametrize("program", sorted({*NAMES} - WITH_LOGS - WITH_DATA))
def test_every_scenario_comes_to_the_same(program: str, cluster: Cluster, short_tmp: Callable[[], Path]) -> None:
    only = {"RTH_ONLY": scenarios(program, later=True)} if program in COMMON else {}
    check(program, cluster.run(program, **EVERYTHING, **only), cluster, short_tmp(), **EVERYTHING)


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
