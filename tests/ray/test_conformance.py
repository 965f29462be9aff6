"""A program does not notice that it is traced: whatever it does with Ray, it sees the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import Cluster
from support import PROGRAMS, Run, run_program

EVERYTHING = {"RAY_TRACING_RAY": "task,actor,get,wait,put", "RAY_TRACING_LOGS": "ids,events,otlp"}
NAMES = sorted(path.stem for path in PROGRAMS.glob("conform_*.py"))


@pytest.mark.timeout(900)  # programs do a lot, each of it with a time limit of its own
@pytest.mark.parametrize("program", NAMES)
def test_every_scenario_comes_to_the_same(program: str, cluster: Cluster, untraced: str) -> None:
    """Result, error with its text, warnings and output of each scenario are those of an untraced cluster."""

    def both(**variables: Any) -> tuple[Run, Run]:
        with ThreadPoolExecutor(1) as other:  # most of the time they wait
            plain = other.submit(run_program, program, RTH_ADDRESS=untraced, timeout=420, **variables)
            return cluster.run(program, timeout=420, **EVERYTHING, **variables), plain.result()

    traced, plain = both()
    assert traced.spans, "the traced run was traced"
    assert traced.result.keys() == plain.result.keys()
    different = differences(traced, plain)
    print(f"{program}: {len(plain.result) - len(different)} scenarios the same, {len(different)} different")
    if different:
        # Ray itself does not do all of it the same way each time. What tracing changes, it changes again.
        print(f"once different: {different}")
        different = differences(*both(RTH_ONLY=",".join(different)))
    assert not different


def differences(traced: Run, plain: Run) -> dict[str, Any]:
    """What came of each scenario that was not the same in both runs, or that does not say what happens, but fails."""
    return {
        name: (plain.result[name], traced.result[name])
        for name in plain.result
        if plain.result[name] != traced.result[name] or "failed" in plain.result[name]
    }
