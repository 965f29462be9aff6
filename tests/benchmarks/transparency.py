"""Counts the scenarios of the conformance tests in which a program notices that it is traced, for this package's hook
and for others.

    python tests/benchmarks/transparency.py [PROGRAM ...]

Every program of ``tests/ray/programs/conform_*.py`` runs on a fresh cluster without a hook, and then on one with each
hook. A scenario is *the same* if its result, errors, warnings and output are those without a hook, *hung* if it was not
over after two minutes, *crashed* if the program ended in it; what comes after such a scenario runs on another cluster.
The row ``none`` is a second run without a hook: what differs there differs by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "ray"), str(HERE.parent / "helpers")]

from conftest import start_head, stop_head  # noqa: E402
from support import HOOK, PROGRAMS, environment  # noqa: E402

HOOKS = {
    "none": None,
    "ray-tracing-hooks": HOOK,
    "Ray's own": "ray.util.tracing.setup_local_tmp_tracing:setup_tracing",
    "batch processor": "batch_hook:setup",
}
PATIENCE = 120
"""Seconds without an outcome after which a scenario counts as hung."""

HUNG, CRASHED = "hung", "crashed"


def outcomes(program: str, hook: str | None, names: list[str] | None = None) -> dict[str, Any]:
    """What each scenario of a program came to; ``names`` are those that there are, if that is known."""
    found, ended = run(program, hook, names or [])
    if names is None:
        if ended is not None:
            raise SystemExit(f"{program}: {ended} without a hook")
        return found
    while left := [name for name in names if name not in found]:
        # They ran in this order, and the first of them is the one that did not end.
        found[left.pop(0)] = ended
        if left:
            came, ended = run(program, hook, left)
            found.update(came)
    return found


def run(program: str, hook: str | None, names: list[str]) -> tuple[dict[str, Any], str | None]:
    """The outcomes of one run, and how it ended, if not well."""
    folder = Path(tempfile.mkdtemp(prefix="rth-"))
    variables = {
        "RTH_ONLY": ",".join(names),
        "RTH_OUTCOMES": str(folder / "outcomes"),
        "RAY_TRACING_LOCAL_DIR": str(folder / "spans"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROGRAMS), str(HERE), os.environ.get("PYTHONPATH")])),
    }
    head, address = start_head(folder, *([f"--tracing-startup-hook={hook}"] if hook else []), **variables)
    try:
        with open(folder / "output", "wb") as output:
            program_run = subprocess.Popen(
                [sys.executable, str(PROGRAMS / f"{program}.py")],
                env=environment(**variables, RTH_ADDRESS=address),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            how = watch(program_run, folder / "outcomes")
        if how is not None:
            last = (folder / "output").read_text(errors="replace")[-2000:]
            print(f"{program} under {hook}: {how}\n{last}", file=sys.stderr)
        return read(folder / "outcomes"), how
    finally:
        stop_head(head)
        shutil.rmtree(folder, ignore_errors=True)


def watch(program_run: subprocess.Popen[bytes], outcomes_file: Path) -> str | None:
    """Wait for the end of a run; how it ended, if not well."""
    seen, since = -1, time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return CRASHED if program_run.wait(1) else None
        size = outcomes_file.stat().st_size if outcomes_file.exists() else 0
        if size != seen:
            seen, since = size, time.monotonic()
        elif time.monotonic() - since > PATIENCE:
            started = psutil.Process(program_run.pid).children(recursive=True)
            program_run.kill()
            program_run.wait()
            for process in started:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            return HUNG


def read(path: Path) -> dict[str, Any]:
    came: dict[str, Any] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            came.update(json.loads(line))
    return came


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    programs = sorted(path.stem for path in PROGRAMS.glob("conform_*.py"))
    parser.add_argument("programs", nargs="*", default=programs, metavar="PROGRAM", help="default: all of them")
    parser.add_argument("--hooks", nargs="*", default=list(HOOKS), choices=list(HOOKS))
    parser.add_argument("--show", action="store_true", help="print what differs, and how")
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = {hook: Counter() for hook in options.hooks}
    for program in options.programs:
        began = time.monotonic()
        plain = outcomes(program, None)
        print(f"{program}: {len(plain)} scenarios, {time.monotonic() - began:.0f} s", file=sys.stderr)
        for hook in options.hooks:
            began = time.monotonic()
            traced = outcomes(program, HOOKS[hook], list(plain))
            how = {name: verdict(plain[name], traced[name]) for name in plain}
            counts[hook].update(how.values())
            bad = [f"{name} {result}" for name, result in how.items() if result != "same"]
            print(f"  {hook}: {time.monotonic() - began:.0f} s; {', '.join(bad) or 'all the same'}", file=sys.stderr)
            if options.show:
                for name in (name for name, result in how.items() if result != "same"):
                    print(
                        f"    {name}\n      {json.dumps(plain[name])}\n      {json.dumps(traced[name])}",
                        file=sys.stderr,
                    )
    print(f"{'hook':20}{'the same':>10}{'different':>11}{'hung':>6}{'crashed':>9}")
    for hook, count in counts.items():
        print(f"{hook:20}{count['same']:>10}{count['different']:>11}{count[HUNG]:>6}{count[CRASHED]:>9}")


def verdict(plain: Any, traced: Any) -> str:
    if isinstance(traced, str):
        return traced
    return "same" if traced == plain else "different"


if __name__ == "__main__":
    main()
