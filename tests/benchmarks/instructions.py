"""What our part of one call costs in instructions of the processor, which no busy machine changes.

    python tests/benchmarks/instructions.py

Counts with callgrind (the program ``valgrind``) what a submission and an execution add to a call, each in a process of
its own and without Ray, whose answers stand-ins give: what Ray does is not counted, and neither is what the kernel does
to write a record. Python's own work is nearly all of it. Takes about two minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FEW, MANY = 200, 1200
HELPERS = Path(__file__).parents[1] / "helpers"
WHAT = {
    "execution, nothing carried": ("execution", 0x03, False),
    "execution, context carried": ("execution", 0x03, True),
    "execution, not sampled": ("execution", 0x02, False),
    "submission": ("submission", 0x03, False),
    "submission, not sampled": ("submission", 0x02, False),
}
_COLLECTED = re.compile(r"Collected : (\d+)")


def call(part: str, flags: int, carried: bool, folder: Path) -> Callable[[], Any]:
    """What is to be counted."""
    sys.path.insert(0, str(HELPERS))
    import stand_ins
    from stand_ins import DRIVER_TASK_ID, TASK_ID, tracing_of, worker_of_job

    from ray_tracing_hooks._ray import actors, execution, submission, tracing
    from ray_tracing_hooks._ray.arguments import KEY
    from ray_tracing_hooks._ray.cluster import JobTrace
    from ray_tracing_hooks._ray.process import DRIVER
    from ray_tracing_hooks._record import carrier
    from ray_tracing_hooks._record.span import Parent

    job = JobTrace(os.urandom(16), os.urandom(8), flags, DRIVER_TASK_ID)
    stand_ins.stand_in(
        all_traced=True, publish=lambda _self, _job_id, _trace: True, published=lambda _self, _job_id: job
    )
    if part == "execution":
        tracing.active = worker_of_job(folder)
        context = carrier.encode(job.trace_id, job.root_span_id, flags, time.time_ns(), DRIVER_TASK_ID, None)
        arguments = {KEY: context} if carried else {}
        execute = execution._function_executor(lambda: b"ok", execution.Beginning("Actor", "method").begin)
        return lambda: execute(**arguments)
    tracing.active = driver = tracing_of(folder, DRIVER)
    driver.recorder.fallback = Parent(job.trace_id, job.root_span_id, flags, None, remote=False)
    driver.calls.publish_job_trace()
    result, called = stand_ins.Id(TASK_ID), stand_ins.Method()
    remote = submission.traced(actors._describe)(lambda *_arguments, **_options: result)
    return lambda: remote(called, (), {})


def counted(name: str, calls: int) -> int:
    """The instructions of a process that makes so many calls."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [sys.executable, __file__, name, str(calls), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _COLLECTED.search(done.stderr)
    if done.returncode or not found:
        raise SystemExit(f"callgrind could not run the call:\n{done.stderr}")
    return int(found[1])


def main() -> None:
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is needed to count instructions: install the package of that name")
    for name in WHAT:
        each = (counted(name, MANY) - counted(name, FEW)) / (MANY - FEW)
        print(f"{name:30}{each:>10,.0f} instructions a call", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        again = call(*WHAT[sys.argv[1]], Path(sys.argv[3]))
        for _ in range(int(sys.argv[2])):
            again()
    else:
        main()
