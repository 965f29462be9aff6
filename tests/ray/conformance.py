"""What programs of scenarios come to without tracing: on a cluster that runs, and as it was recorded."""

from __future__ import annotations

import gzip
import json
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from conftest import start_head, stop_head
from support import PROGRAMS, run_program

RECORDED = Path(__file__).parent / "recorded"
WITH_LOGS = {"conform_connections", "conform_observed"}
"""Programs that print what their workers do: the clusters of these alone have a log monitor, which is never idle."""
LOGS = {"RTH_LOG_MONITOR": "1"}
NAMES = sorted(path.stem for path in PROGRAMS.glob("conform_*.py"))
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


def recorded(program: str) -> dict[str, Any]:
    """What the scenarios came to on an untraced cluster, and the ``versions`` of Ray and Python that they ran with."""
    path = RECORDED / f"{program}.json.gz"
    return dict(json.loads(gzip.decompress(path.read_bytes()))) if path.exists() else {"versions": {}}


def record(program: str, outcomes: dict[str, Any]) -> None:
    kept = {name: outcome for name, outcome in outcomes.items() if name not in NOT_RECORDED}
    text = json.dumps({"versions": VERSIONS, **kept}, indent=0, sort_keys=True)
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{program}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


@contextmanager
def untraced_runs(program: str, folder: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """A function that runs the program, or some scenarios of it, on an untraced cluster, and returns its outcomes."""
    head, address = start_head(folder, **(LOGS if program in WITH_LOGS else {}))

    def run(*scenarios: str) -> dict[str, Any]:
        return portable(run_program(program, RTH_ADDRESS=address, timeout=420, RTH_ONLY=",".join(scenarios)).result)

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
