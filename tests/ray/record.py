"""Runs the programs of scenarios on untraced clusters, and keeps what they come to in ``recorded/``.

    PYTHONPATH=tests/helpers .venv/bin/python tests/ray/record.py [NAME]...

Without a NAME it records all of them, which takes some minutes. Tests pass without: what is not recorded, or differs,
they run without tracing too. Record where a program or the version of Ray changes, so that they need not.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import support
from conformance import NAMES, different, record, untraced_runs


def main() -> None:
    support.ray_folder = tempfile.mkdtemp(prefix="rec-")
    try:
        for program in sys.argv[1:] or NAMES:
            with untraced_runs(program, Path(tempfile.mkdtemp(dir=support.ray_folder))) as run:
                outcomes = run()
                # Ray itself does not do all of it the same way each time: what two runs agree on is kept.
                unsure = different(run(), outcomes)
                while unsure:
                    outcomes |= run(*unsure)
                    unsure = different(run(*unsure), outcomes)
            record(program, outcomes)
            print(f"{program}: {len(outcomes)} scenarios")
    finally:
        shutil.rmtree(support.ray_folder)


if __name__ == "__main__":
    main()
