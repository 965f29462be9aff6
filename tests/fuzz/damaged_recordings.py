"""Damaged recordings: ``damaged_recordings.py [FIRST] [NUMBER]`` shows so many of them, and what is wrong with any.

Run it with ``PYTHONPATH=tests/helpers``. The number of a recording is its seed, so one that fails can be made again.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from random import Random

from mutations import mutated, problems
from recordings import RECORDED


def main(first: int = 0, number: int = 10_000) -> None:
    names = tuple(sorted(path.name.partition(".")[0] for path in RECORDED.glob("*.jsonl.gz")))
    seen: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + number):
            for problem in problems(mutated(Random(seed), names), Path(folder)):
                print(f"{seed}: {problem if problem not in seen else problem.splitlines()[-1]}", flush=True)
                seen.add(problem)
    print(f"{number:,} recordings, {len(seen):,} different problems")
    sys.exit(bool(seen))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
