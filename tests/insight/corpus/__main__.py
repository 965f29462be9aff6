"""Commands for the corpus: ``python -m corpus COMMAND``, in ``tests/insight``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from corpus import PROGRAMS, load_all, recording, scenes, tables

COMMANDS = {
    "list": "the programs and their causes",
    "table": "what the summary says of the recorded programs, next to what it has to say",
    "record": "run programs on Ray, and keep their spans: on an idle machine",
    "scenes": "the same for the runs that tests of single views use",
}


def main() -> None:
    """Parse the arguments, and run the command."""
    parser = argparse.ArgumentParser(prog="python -m corpus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about)
        command.add_argument("names", nargs="*", help="programs or subjects; all without one")
        command.add_argument("--at-once", type=int, default=1, help="how many programs run at the same time")
        command.add_argument("--missing", action="store_true", help="only those that are not recorded yet")
    asked = parser.parse_args()
    load_all()
    known = {word for each in PROGRAMS.values() for word in (each.name, each.subject)}
    if unknown := set(asked.names) - (scenes.SCENES.keys() if asked.command == "scenes" else known):
        parser.error(f"there is no program or subject {', '.join(sorted(unknown))}")
    chosen = [each for each in PROGRAMS.values() if not asked.names or {each.name, each.subject} & set(asked.names)]
    if asked.missing:
        chosen = [each for each in chosen if not recording.is_recorded(each)]
    if asked.command == "scenes":
        run_all([partial(scenes.record, name) for name in asked.names or scenes.SCENES], asked.at_once)
    elif asked.command == "record":
        run_all([partial(recording.record, each) for each in chosen], asked.at_once)
    else:
        print("\n".join((tables.causes if asked.command == "list" else tables.table)(chosen)))


def run_all(work: Iterable[Callable[[], str]], at_once: int) -> None:
    """Print what each returns as it comes. Ends with code 1 if one has failed; the others run all the same."""
    begun, failed, number = time.monotonic(), 0, 0
    with ThreadPoolExecutor(at_once) as threads:
        for running in [threads.submit(each) for each in work]:
            number += 1
            try:
                print(running.result(), flush=True)
            except Exception as error:  # noqa: BLE001  # one program that fails does not end the others
                print("FAILED:", error, flush=True)
                failed += 1
    print(f"{number} programs in {(time.monotonic() - begun) / 60:.0f} minutes, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
