"""What programs of scenarios come to without tracing: on a cluster that runs, and as it was recorded."""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from conftest import Cluster, start_head, stop_head
from support import PROGRAMS, Run, run_program, spans_in, with_data, with_training

RECORDED = Path(__file__).parent / "recorded"
WITH_LOGS = {"conform_connections", "conform_observed"}
"""Programs that print what their workers do: the clusters of these alone have a log monitor, which is never idle."""
LOGS = {"RTH_LOG_MONITOR": "1"}
WITH_DATA = {"conform_data"}
"""Programs that need Ray Data, which is installed separately."""
NAMES = sorted(path.stem for path in PROGRAMS.glob("conform_*.py"))
TRAINING = ("rllib_runs", "train_runs", "tune_runs")
"""Programs that start a cluster of their own, and have one outcome."""
PLACES = {
    str(PROGRAMS): "PROGRAMS",
    sysconfig.get_path("purelib"): "PACKAGES",
    sysconfig.get_path("stdlib"): "LIBRARY",
    sys.prefix: "PREFIX",
}
"""Folders that tracebacks name, which are others on each machine."""
NOT_RECORDED = {
    "the_process_around",  # the environment
    "classes_and_functions_as_values",  # sizes of pickles, which contain paths
    "functions_of_rays_own",  # as above
    "calls_as_they_are_listed",  # Ray lists states that depend on how busy the machine is
}
"""Scenarios that come to something else on another machine, or another time, without tracing too."""
VERSIONS = {"ray": ray.__version__, "python": platform.python_version().rpartition(".")[0]}


def portable(outcomes: dict[str, Any]) -> dict[str, Any]:
    """The same without the folders of this machine."""
    text = json.dumps(outcomes)
    for place, name in PLACES.items():
        text = text.replace(place, name)
    return dict(json.loads(text))


def made_of(program: str) -> dict[str, Any]:
    """What a recording depends on: the versions of Ray and Python, and the sources of the program, as a digest."""
    return {"versions": VERSIONS, "sources": _digest(program)}


def _digest(program: str) -> str:
    """The SHA-256 of the program and of the modules beside it that it imports, directly or through others."""
    found, ahead = dict[str, bytes](), [program]
    while ahead:
        name = ahead.pop()
        path = PROGRAMS / f"{name}.py"
        if name not in found and path.exists():
            found[name] = path.read_bytes()
            for node in ast.walk(ast.parse(found[name])):
                if isinstance(node, ast.Import):
                    ahead += [each.name for each in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module:
                    ahead.append(node.module)
    return hashlib.sha256(b"\0".join(found[name] for name in sorted(found))).hexdigest()


def recorded(program: str) -> dict[str, Any]:
    """What the scenarios came to on an untraced cluster, and what that depends on: :func:`made_of`."""
    path = RECORDED / f"{program}.json.gz"
    return dict(json.loads(gzip.decompress(path.read_bytes()))) if path.exists() else {"versions": {}}


def record(program: str, outcomes: dict[str, Any]) -> None:
    kept = {name: outcome for name, outcome in outcomes.items() if name not in NOT_RECORDED}
    text = json.dumps({**made_of(program), **kept}, indent=0, sort_keys=True)
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{program}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def variables_of(program: str) -> dict[str, Any]:
    """The variables of a program and of the clusters that it runs on."""
    return {**(LOGS if program in WITH_LOGS else {}), **(with_data() if program in WITH_DATA else {})}


@contextmanager
def untraced_runs(program: str, folder: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """A function that runs the program, or some scenarios of it, on an untraced cluster, and returns its outcomes."""
    variables = variables_of(program)
    head, address = start_head(folder, **variables)

    def run(*scenarios: str) -> dict[str, Any]:
        only = ",".join(scenarios)
        return portable(run_program(program, RTH_ADDRESS=address, RTH_ONLY=only, **variables).result)

    try:
        yield run
    finally:
        stop_head(head)


def different(outcomes: dict[str, Any], untraced: dict[str, Any]) -> dict[str, Any]:
    """What came of each scenario that is not the same without tracing, or that does not say what happens, but fails."""
    return {
        name: (untraced.get(name), outcome)
        for name, outcome in outcomes.items()
        if outcome != untraced.get(name) or "failed" in outcome
    }


def untraced_training(program: str, folder: Path) -> dict[str, Any]:
    """What one of :data:`TRAINING` comes to without tracing, with files in this folder."""
    arguments = () if program == "rllib_runs" else (str(folder),)
    outcome = compared(run_program(program, *arguments, **with_training()).result)
    assert not spans_in(folder)
    return outcome


def compared(outcome: dict[str, Any]) -> dict[str, Any]:
    """What is the same each time. The times that the ranks of a run of Ray Train have measured are not."""
    if "four" not in outcome:
        return outcome
    measured = dict(outcome["four"])
    assert len(measured.pop("meeting")) == 12
    return {**outcome, "four": measured}


def check_training(program: str, traced: dict[str, Any], folder: Path) -> None:
    """What one of :data:`TRAINING` comes to with tracing is the same as without, as recorded or else as it is now."""
    outcome = portable(compared(traced))
    is_recorded = recorded(program) == {**made_of(program), "runs": [outcome]}
    print(f"{program}: {'as recorded' if is_recorded else 'not as recorded'}")
    assert is_recorded or outcome == portable(untraced_training(program, folder))


def check(program: str, traced: Run, cluster: Cluster, folder: Path, **variables: str) -> None:
    """Result, error with its text, warnings and output of each scenario are those of an untraced cluster: as they have
    been recorded, or else as they are now, since other versions of Ray and of Python differ.

    ``traced`` is a run on a traced cluster with these ``variables``.
    """
    assert traced.spans, "the traced run was traced"
    others = different(portable(traced.result), recorded(program))
    print(f"{program}: {len(traced.result) - len(others)} scenarios as recorded, others: {', '.join(others) or 'none'}")
    if not others:
        return
    with untraced_runs(program, folder) as run, ThreadPoolExecutor(1) as pool:  # most of the time they wait
        # Ray itself does not do all of it the same way each time. What tracing changes, it changes again.
        for _ in range(2):
            plain = pool.submit(run, *others)
            traced = cluster.run(program, RTH_ONLY=",".join(others), **variables)
            others = different(portable(traced.result), plain.result())
            if not others:
                return
    assert not others
