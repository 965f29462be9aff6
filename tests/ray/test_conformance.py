"""A program does not notice that it is traced: whatever it does with Ray, it sees the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conformance import LOGS, NAMES, VERSIONS, WITH_LOGS, different, portable, recorded, untraced_runs
from conftest import Cluster, start_head, stop_head
from support import HOOK

EVERYTHING = {"RAY_TRACING_RAY": "task,actor,get,wait,put", "RAY_TRACING_LOGS": "ids,events,otlp"}

pytestmark = pytest.mark.timeout(900)  # programs do a lot, each of it with a time limit of its own


@pytest.fixture
def with_logs(short_tmp: Callable[[], Path]) -> Iterator[Cluster]:
    """A traced cluster that sends drivers what workers print."""
    folder = short_tmp()
    variables = {"RAY_TRACING_LOCAL_DIR": str(folder / "spans"), **LOGS}
    head, address = start_head(folder, f"--tracing-startup-hook={HOOK}", **variables)
    yield Cluster(address, folder / "spans")
    stop_head(head)


@pytest.mark.parametrize("program", sorted({*NAMES} - WITH_LOGS))
def test_every_scenario_comes_to_the_same(program: str, cluster: Cluster, short_tmp: Callable[[], Path]) -> None:
    check(program, cluster, short_tmp())


@pytest.mark.parametrize("program", sorted(WITH_LOGS))
def test_every_scenario_comes_to_the_same_with_logs(
    program: str, with_logs: Cluster, short_tmp: Callable[[], Path]
) -> None:
    check(program, with_logs, short_tmp())


def check(program: str, cluster: Cluster, folder: Path) -> None:
    """Result, error with its text, warnings and output of each scenario are those of an untraced cluster: as they have
    been recorded, or else as they are now, since other versions of Ray and of Python differ.
    """
    traced = cluster.run(program, timeout=420, **EVERYTHING)
    assert traced.spans, "the traced run was traced"
    others = different(portable(traced.result), recorded(program))
    print(f"{program}: {len(traced.result) - len(others)} scenarios as recorded, others: {', '.join(others) or 'none'}")
    if not others:
        return
    with untraced_runs(program, folder) as run, ThreadPoolExecutor(1) as pool:  # most of the time they wait
        # Ray itself does not do all of it the same way each time. What tracing changes, it changes again.
        for _ in range(2):
            plain = pool.submit(run, *others)
            traced = cluster.run(program, timeout=420, RTH_ONLY=",".join(others), **EVERYTHING)
            others = different(portable(traced.result), plain.result())
            if not others:
                return
    assert not others


@pytest.mark.slow  # each program without tracing, to see that it comes to what is recorded
@pytest.mark.parametrize("program", NAMES)
def test_what_is_recorded_is_what_untraced_clusters_do(program: str, short_tmp: Callable[[], Path]) -> None:
    known = recorded(program)
    if known.pop("versions") != VERSIONS:
        pytest.skip("recorded with other versions of Ray or of Python")
    with untraced_runs(program, short_tmp()) as run:

        def others() -> dict[str, Any]:
            return {name: pair for name, pair in different(run(), known).items() if name in known}

        # Ray itself does not do all of it the same way each time.
        changed = others() and others()
        assert not changed, f"recorded, and now: {json.dumps(changed, indent=1)}"
