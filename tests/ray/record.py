"""Runs the programs of scenarios on untraced clusters, and keeps what they come to in ``recorded/``.

    PYTHONPATH=tests/helpers .venv/bin/python tests/ray/record.py [--check] [NAME]...

Without a NAME it records all of them, which takes some minutes. What is not recorded, or differs, tests of traced
clusters run without tracing too. Record where a program or the version of Ray changes, so that they need not. With
``--check`` it compares what is recorded, and ends with exit code 1 if untraced clusters come to something else.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import support
from conformance import (
    NAMES,
    NOT_RECORDED,
    TRAINING,
    different,
    made_of,
    portable,
    record,
    recorded,
    untraced_runs,
    untraced_training,
)

ALL = [*NAMES, *TRAINING]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, and record nothing")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of these: {', '.join(ALL)}")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - {*ALL}:
        parser.error(f"no such program: {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    support.ray_folder = tempfile.mkdtemp(prefix="rec-")
    try:
        changed = False
        for program in chosen.names or ALL:
            with runs_of(program, Path(tempfile.mkdtemp(dir=support.ray_folder))) as run:
                if chosen.check:
                    others = compare(program, run)
                    changed = changed or bool(others)
                    print(f"{program}: {json.dumps(others, indent=1) if others else 'as recorded'}", flush=True)
                else:
                    outcomes = agreed(run)
                    record(program, outcomes)
                    print(f"{program}: {len(outcomes)} scenarios", flush=True)
    finally:
        shutil.rmtree(support.ray_folder)
    sys.exit(changed)


@contextmanager
def runs_of(program: str, folder: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """A function that runs the program, or some scenarios of it, without tracing, and returns what that comes to."""
    if program not in TRAINING:
        with untraced_runs(program, folder) as run:
            yield run
        return

    # In a list, since a scenario whose outcome has the key "failed" has failed.
    yield lambda *_all: {"runs": [portable(untraced_training(program, Path(tempfile.mkdtemp(dir=folder))))]}


# Ray itself does not do all of it the same way each time.


def agreed(run: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """What two runs agree on."""
    outcomes = run()
    unsure = different(run(), outcomes)
    while unsure:
        outcomes |= run(*unsure)
        unsure = different(run(*unsure), outcomes)
    return outcomes


def compare(program: str, run: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """What three runs come to that is not as recorded, and what the recording depends on: pairs of what is recorded and
    what is there. The second and third run are of what was different in the one before.
    """
    known, made = recorded(program), made_of(program)
    found = made | run()
    others = {name for name in (found | known).keys() - NOT_RECORDED if found.get(name) != known.get(name)}
    for _ in range(2):
        if again := others & found.keys() - made.keys():
            found |= run(*again)
            others = {name for name in others if found.get(name) != known.get(name)}
    return {name: (known.get(name), found.get(name)) for name in sorted(others)}


if __name__ == "__main__":
    main()
