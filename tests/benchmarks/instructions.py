"""What our part of one call costs, with and without the compiled part.

    python tests/benchmarks/instructions.py

Counts with callgrind (the program ``valgrind``) the instructions of the processor that a submission and an execution
add to a call, which no busy machine changes. Each is in a process of its own and without Ray, whose answers stand-ins
give: what Ray does is not counted, and neither is what the kernel does to write a record.

Then the time that the same takes, with what the kernel does: when it is called over and over, and when the caches
nearest to the processor have been swept each time before, as they are in a worker that does much between two calls.
Medians, which tell more on a machine that does nothing else. Takes about five minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ray_tracing_hooks import _compiled

FEW, MANY = 200, 1200
TIMES = 1000
SWEEP = b"\1" * (4 << 20)
"""To be read, so that the caches nearest to the processor hold nothing else."""

WAYS = {"Python alone": False, "compiled part": True}
HELPERS = Path(__file__).parents[1] / "helpers"
WHAT = {
    "execution, nothing carried": ("execution", 0x03, False),
    "execution, context carried": ("execution", 0x03, True),
    "execution, not sampled": ("execution", 0x02, False),
    "execution, not sampled and not failed": ("execution", 0x02, True),
    "submission": ("submission", 0x03, False),
    "submission, not sampled": ("submission", 0x02, False),
    "submission, not sampled and not failed": ("submission", 0x02, True),
}
"""What is called, the flags of its trace, and whether its context is carried. Where one that is not sampled is carried,
failed calls are recorded."""

_COLLECTED = re.compile(r"Collected : (\d+)")


class Call(NamedTuple):
    """What is to be measured."""

    again: Callable[[], Any]
    active: Any
    """What has to be :data:`tracing.active` meanwhile."""


def call(part: str, flags: int, carried: bool, folder: Path, *, compiled: bool) -> Call:
    sys.path.insert(0, str(HELPERS))
    import stand_ins
    from stand_ins import DRIVER_TASK_ID, TASK_ID, driver_of_job, worker_of_job

    from ray_tracing_hooks._ray import execution, submission, targets, tracing
    from ray_tracing_hooks._ray.arguments import KEY
    from ray_tracing_hooks._ray.cluster import JobTrace
    from ray_tracing_hooks._record import carrier
    from ray_tracing_hooks._record.sampling import KeepRule

    _compiled.use.allow(compiled)
    job = JobTrace(os.urandom(16), os.urandom(8), flags, DRIVER_TASK_ID)
    stand_ins.stand_in(
        all_traced=True, publish=lambda _self, _job_id, _trace: True, published=lambda _self, _job_id: job
    )
    rule = KeepRule(errors=True, slower_ns=None) if carried and not flags & 0x01 else None
    if part == "execution":
        tracing.active = worker_of_job(folder, rule)
        ids = job.trace_id, job.root_span_id, flags, time.time_ns(), DRIVER_TASK_ID
        context = carrier.encode(*ids, None, parent_id=job.root_span_id if rule is not None else None)
        arguments = {KEY: context} if carried else {}
        execute = execution._function_executor(lambda: b"ok", execution.Beginning("Actor", "method").begin)
        execute(**arguments)
        return Call(lambda: execute(**arguments), tracing.active)
    tracing.active = driver = driver_of_job(folder, job, rule)
    result, called = stand_ins.ObjectRef(TASK_ID), stand_ins.Method()
    remote = submission.traced(targets._describe_method, key_of=targets._key_of)(lambda *_arguments, **_options: result)
    remote(called, (), {})
    return Call(lambda: remote(called, (), {}), driver)


def counted(way: str, name: str, calls: int) -> int:
    """The instructions of a process that makes so many calls."""
    # Where it is installed and not used, Python takes a little longer than where it is not installed.
    environment = {**os.environ, _compiled.VARIABLE: str(int(WAYS[way]))}
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={os.devnull}"]
        command += [sys.executable, __file__, way, name, str(calls), folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = _COLLECTED.search(done.stderr)
    if done.returncode or not found:
        raise SystemExit(f"callgrind could not run the call:\n{done.stderr}")
    return int(found[1])


def timed(calls: Mapping[str, Call], sweep: bytes) -> dict[str, float]:
    """The medians of what these calls take by turns, in us."""
    from ray_tracing_hooks._ray import tracing

    clock = time.perf_counter_ns
    times: dict[str, list[int]] = {way: [] for way in calls}
    for _ in range(TIMES):
        for way, (again, active) in calls.items():
            tracing.active = active
            sweep.count(2)
            begun = clock()
            again()
            times[way].append(clock() - begun)
    return {way: statistics.median(each) / 1e3 for way, each in times.items()}


def main() -> None:
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is needed to count instructions: install the package of that name")
    ways = WAYS if _compiled.use.is_loaded else {name: False for name, compiled in WAYS.items() if not compiled}
    print(f"{'':40}{'':15}{'instructions':>15}{'us, warm':>12}{'us, cold':>12}")
    for name, what in WHAT.items():
        with tempfile.TemporaryDirectory() as folder:
            calls = {way: call(*what, Path(folder), compiled=compiled) for way, compiled in ways.items()}
            warm, cold = timed(calls, b""), timed(calls, SWEEP)
        for way in ways:
            each = (counted(way, name, MANY) - counted(way, name, FEW)) / (MANY - FEW)
            print(f"{name:40}{way:15}{each:>15,.0f}{warm[way]:>12.1f}{cold[way]:>12.1f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        again, _ = call(*WHAT[sys.argv[2]], Path(sys.argv[4]), compiled=WAYS[sys.argv[1]])
        for _ in range(int(sys.argv[3])):
            again()
    else:
        main()
