"""Counts the spans that are lost when workers and drivers end, for this package's hook and for others.

    python tests/benchmarks/durability.py [HOOK ...]

The ways are those of ``tests/ray/test_endings.py``. In each, a process has ended some spans, goes on to end more
without pause, and has one open within the span of its work when its end comes. A figure is *found / expected*: of the
spans that had ended, the one that was open, and the one of the work. One more than expected may be found, since the
end may come before the last span was counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "ray"), str(HERE.parent / "helpers")]

from conftest import start_head, stop_head  # noqa: E402
from endings import ENDED, begin  # noqa: E402
from support import HOOK, PROGRAMS, run_program, spans_in  # noqa: E402
from test_endings import DRIVERS, WORKERS  # noqa: E402

HOOKS = {
    "ray-tracing-hooks": HOOK,
    "Ray's own": "ray.util.tracing.setup_local_tmp_tracing:setup_tracing",
    "batch processor": "batch_hook:setup",
}
RAYS_OWN_FOLDER = Path("/tmp/spans")
"""Where Ray's own hook writes, whatever it is told."""

SETTLING = 15.0
"""Seconds after the last end at which a span that is not there yet counts as lost."""


class Found(NamedTuple):
    """A span in a file of any of the hooks."""

    name: str
    span_id: str
    parent_id: str


def written(folder: Path, since: float) -> Iterator[Found]:
    """The spans that a hook of the SDK's console exporter has written since then: one JSON object after the other."""
    for path in folder.glob("*.txt"):
        if path.stat().st_mtime < since:
            continue
        text, position = path.read_text(), 0
        while (position := text.find("{", position)) >= 0:
            try:
                span, position = json.JSONDecoder().raw_decode(text, position)
            except ValueError:  # cut off
                break
            yield Found(span["name"], span["context"]["span_id"], span["parent_id"] or "")


def figures(hook: str) -> dict[str, tuple[int, int]]:
    """For each way what was found and what was expected."""
    folder = Path(tempfile.mkdtemp(prefix="rth-"))
    variables = {
        "RAY_TRACING_LOCAL_DIR": str(folder / "spans"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROGRAMS), str(HERE), os.environ.get("PYTHONPATH")])),
    }
    since = time.time()
    head, address = start_head(
        folder,
        f"--tracing-startup-hook={hook}",
        RAY_num_workers_soft_limit="0",
        RAY_idle_worker_killing_time_threshold_ms="500",
        **variables,
    )
    try:
        run_program("endings_workers", str(folder), *WORKERS, check=True, RTH_ADDRESS=address, **variables)
        for how in DRIVERS:
            with begin(how, folder, RTH_ADDRESS=address, **variables) as driver:
                driver.wait(timeout=120)
        time.sleep(SETTLING)
    finally:
        stop_head(head)
    if hook == HOOK:
        found = [Found(span.name, span.span_id, span.parent_id) for span in spans_in(folder / "spans")]
    else:
        found = list(written(RAYS_OWN_FOLDER if "local_tmp" in hook else folder / "spans", since))
    rows = {how: count(folder, found, [how]) for how in WORKERS}
    rows |= {f"driver {how}": count(folder, found, [f"driver {how}", f"busy {how}"]) for how in DRIVERS}
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def count(folder: Path, found: list[Found], labels: list[str]) -> tuple[int, int]:
    """What was found, and what was expected, of the processes with these labels."""
    named = Counter(span.name for span in found)
    ids = {span.span_id for span in found}
    there = expected = 0
    for label in labels:
        there += sum(named[f"{what} {label}"] for what in ("batch", "ended", "open"))
        expected += int((folder / f"{label}.count").read_text()) + ENDED + 1
        if not label.startswith("driver "):  # only this package's hook makes a span of the driver
            expected += 1
            there += bool({span.parent_id for span in found if span.name == f"ended {label}"} & ids)
    return there, expected


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hooks", nargs="*", metavar="HOOK", help=f"one of {', '.join(HOOKS)}; all of them by default")
    chosen = parser.parse_args(arguments).hooks or list(HOOKS)
    table: dict[str, Any] = {}
    for name in chosen:
        print(f"{name} ...", file=sys.stderr, flush=True)
        table[name] = figures(HOOKS[name])
    print(f"{'how it ends':<22}" + "".join(f"{name:>22}" for name in table))
    for how in next(iter(table.values())):
        print(f"{how:<22}" + "".join(f"{'{} / {}'.format(*rows[how]):>22}" for rows in table.values()))
    lost = {
        name: sum(max(0, expected - there) for there, expected in rows.values()) / sum(e for _, e in rows.values())
        for name, rows in table.items()
    }
    print(f"{'lost':<22}" + "".join(f"{share:>22.1%}" for share in lost.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
