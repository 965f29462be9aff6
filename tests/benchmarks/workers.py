"""What a hook adds to the start of a Ray worker, and to what the worker holds then.

    python tests/benchmarks/workers.py [--workers 20] [--rounds 2] [--lanes NAME;...]

Each contender has a cluster of its own in each round, and they take turns, the order reversed each time, so that a
slow moment of the machine hits all of them alike. Each cluster starts so many actors, a few at once, which stay.

The first table has the hook alone, inside real workers: from the import of its module until it returns, by a hook
around it. CPU time is that of its thread; the least is what the machine can do when nothing else runs. The last columns
are the CPU time that the whole process has used when its first method runs. An installed package has its bytecode
beside it; from a checkout, with ``PYTHONDONTWRITEBYTECODE``, every worker compiles all that it imports, which takes
three times as long as the rest.

The second has what a worker holds when all are up: medians, and in brackets what they are more than without a hook.
Memory is that of ``/proc/PID/smaps_rollup``: what a process has in memory (RSS), the same with its share of what others
have there too (PSS), and without that (USS).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from timed_hook import HOOK

HERE = Path(__file__).parent
GROUP = 5
"""So many workers start at once: few, since they share the processors."""

UNTRACED = "untraced"
HOOKS = {
    UNTRACED: "",
    # What Ray itself does where there is any hook, such as importing the API of OpenTelemetry.
    "empty hook": "timed_hook:nothing",
    "ours, local": "ray_tracing_hooks.local:setup",
    "ours, otlp": "ray_tracing_hooks.otlp:setup",
    "Ray's own": "ray.util.tracing.setup_local_tmp_tracing:setup_tracing",
    "batch, OTLP": "usual_hook:setup",
}
TIMES = ("hook, CPU: least", "median", "hook, wall: median", "modules", "process, CPU: least", "median")
HELD = ("RSS MiB", "PSS MiB", "USS MiB", "threads", "descriptors")
RESULT = "RESULT "


class Worker:
    def look(self) -> dict[str, Any]:
        process = time.process_time()
        # The module is there where it was the hook.
        return {"pid": os.getpid(), "process": process, **getattr(sys.modules.get("timed_hook"), "taken", {})}


def run(lane: str, count: int) -> None:
    """Start workers in groups, and print what each of them says and holds when all are up."""
    import ray

    options: dict[str, Any] = {"_tracing_startup_hook": "timed_hook:setup"} if HOOKS[lane] else {}
    ray.init(
        "local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=80_000_000, **options
    )
    worker = ray.remote(num_cpus=0)(Worker)
    actors: list[Any] = []
    found: list[dict[str, Any]] = []
    while len(actors) < count:
        group = [worker.remote() for _ in range(min(GROUP, count - len(actors)))]
        found += ray.get([actor.look.remote() for actor in group])
        actors += group
    print(RESULT + json.dumps([{**row, "held": held(row["pid"])} for row in found]))
    ray.shutdown()


def held(pid: int) -> list[float]:
    kib: dict[str, int] = {}
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if rest.endswith(" kB\n"):
                kib[name] = int(rest.split()[0])
    memory = [kib["Rss"], kib["Pss"], kib["Private_Clean"] + kib["Private_Dirty"]]
    return [*(size / 1024 for size in memory), len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))]


def drive(lane: str, collector: str, workers: int) -> list[dict[str, Any]]:
    """The rows of a lane, from a driver of its own."""
    with tempfile.TemporaryDirectory(prefix="rth-", ignore_cleanup_errors=True) as folder:
        environment = {
            **os.environ,
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": folder,
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE / "calls"), os.environ.get("PYTHONPATH", "")]),
            "RAY_TRACING_LOCAL_DIR": os.path.join(folder, "spans"),
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
            HOOK: HOOKS[lane],
        }
        command = [sys.executable, __file__, "--drive", lane, "--workers", str(workers)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise SystemExit(f"the driver of {lane!r} failed:\n{done.stderr}")
    # Ray prints there too.
    rows: list[dict[str, Any]] = json.JSONDecoder().raw_decode(done.stdout.rpartition(RESULT)[2])[0]
    return rows


@contextmanager
def collector() -> Iterator[str]:
    """The address of one that answers at once."""
    command = [sys.executable, str(HERE / "shipper_throughput.py"), "--collect", "grpc"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


def times_of(rows: list[dict[str, Any]], lane: str) -> list[str]:
    process = [row["process"] * 1e3 for row in rows]
    of_process = [f"{min(process):.0f}", f"{statistics.median(process):.0f}"]
    if lane == UNTRACED:
        return ["", "", "", "", *of_process]
    cpu, wall = [row["cpu"] * 1e3 for row in rows], [row["wall"] * 1e3 for row in rows]
    times = (min(cpu), statistics.median(cpu), statistics.median(wall))
    modules = statistics.median(len(row["modules"]) for row in rows)
    return [*(f"{milliseconds:.1f}" for milliseconds in times), f"{modules:.0f}", *of_process]


def compared(values: list[float], base: list[float]) -> list[str]:
    return [f"{value:.1f} ({value - least:+.1f})" for value, least in zip(values, base, strict=True)]


def table(title: str, columns: tuple[str, ...], rows: dict[str, list[str]]) -> str:
    widths = [max(len(column), 14) + 3 for column in columns]
    lines = [f"{title:16}" + "".join(f"{column:>{width}}" for column, width in zip(columns, widths, strict=True))]
    for lane, cells in rows.items():
        lines.append(f"{lane:16}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=20, help="of each contender in a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--lanes", default=";".join(HOOKS), help=f"with semicolons between them, of {'; '.join(HOOKS)}")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.drive:
        run(chosen.drive, chosen.workers)
        return
    lanes = chosen.lanes.split(";")
    found: dict[str, list[dict[str, Any]]] = {lane: [] for lane in lanes}
    with collector() as address:
        for number in range(chosen.rounds):
            for lane in lanes if number % 2 == 0 else reversed(lanes):
                print(f"round {number + 1} of {chosen.rounds}: {lane}", file=sys.stderr, flush=True)
                found[lane] += drive(lane, address, chosen.workers)
    print(table("milliseconds", TIMES, {lane: times_of(rows, lane) for lane, rows in found.items()}))
    medians = {
        lane: [statistics.median(column) for column in zip(*(row["held"] for row in rows), strict=True)]
        for lane, rows in found.items()
    }
    print("\n" + table("", HELD, {lane: compared(held, medians.get(UNTRACED, held)) for lane, held in medians.items()}))


if __name__ == "__main__":
    main()
