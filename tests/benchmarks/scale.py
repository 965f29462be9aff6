"""What a call costs of ours as a program grows: more call sites, open spans, spans in a trace.

    python tests/benchmarks/scale.py [--curves NAME,...]

All is measured in one process, with the real recorder and spool and with stand-ins for what Ray hands to us. Sizes take
turns, a few calls each; a figure is the least processor time of all turns, less that of the same without tracing, in
microseconds a call: its submission and its execution. Delivery is the least processor time in which the shipper reads
further spans and puts them into batches, in microseconds a span.

Each curve should be flat.
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from ray_tracing_hooks._ray import execution, submission, targets, tracing
from ray_tracing_hooks._ray.cluster import Cluster, JobTrace
from ray_tracing_hooks._ray.process import DRIVER
from ray_tracing_hooks._record.span import Parent
from ray_tracing_hooks._ship.folder import Folder
from ray_tracing_hooks._ship.follow import Follower
from ray_tracing_hooks._ship.log import Problems

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import stand_ins
from stand_ins import DRIVER_TASK_ID, TASK_ID, tracing_of, worker_of_job

CALLS, REPEATS = 50, 300
"""Of a burst, and bursts."""

SPANS, READS = 2_000, 20
"""The same of delivery."""

JOB = JobTrace(os.urandom(16), os.urandom(8), 0x03, DRIVER_TASK_ID)
RESULT = stand_ins.ObjectRef(TASK_ID)

Burst = Callable[[int], None]
"""Makes so many calls."""


class Point(NamedTuple):
    """A program of one size, traced and not."""

    size: int
    traced: Burst
    untraced: Burst


class Curve(NamedTuple):
    unit: str
    figures: dict[int, float]
    """By size."""


def nothing(*_arguments: Any, **_options: Any) -> Any:
    return RESULT


class Program:
    """Both ends of a call in one process, which records into ``folder``."""

    def __init__(self, folder: Path, sites: int = 1) -> None:
        def body() -> None: ...

        self.folder = folder
        self.worker = worker_of_job(folder)
        self.driver = tracing_of(folder, DRIVER)
        self.driver.recorder.fallback = Parent(JOB.trace_id, JOB.root_span_id, JOB.flags, None, remote=False)
        self.driver.calls.publish_job_trace()
        call, run = (submission.traced(each)(nothing) for each in (targets._describe_method, targets._describe_task))
        self._submit, self._execute = [], []
        for number in range(sites):
            if number % 2:
                method = stand_ins.Method()
                method._method_name = f"method_{number}"
                self._submit.append(partial(call, method, (), {}))
                self._execute.append(
                    execution._function_executor(body, execution.Beginning("Actor", f"method_{number}").begin)
                )
            else:
                name = f"module.function_{number}"
                function = SimpleNamespace(_is_cross_language=False, _function_name=name, _decorator=None)
                self._submit.append(partial(run, function, (), {}))
                self._execute.append(execution._function_executor(body, execution.Beginning("", name).begin))
        self._next = 0
        self.burst(sites)  # call sites are seen for the first time once

    def burst(self, count: int) -> None:
        sites, first = len(self._submit), self._next
        self._next = (first + count) % sites
        tracing.active = self.driver
        for number in range(first, first + count):
            self._submit[number % sites]()
        tracing.active = self.worker
        for number in range(first, first + count):
            self._execute[number % sites]()
        tracing.active = None

    def untraced_burst(self, count: int) -> None:
        sites, first = len(self._submit), self._next
        for number in range(first, first + count):
            self._submit[number % sites]()
        for number in range(first, first + count):
            self._execute[number % sites]()

    def point(self, size: int) -> Point:
        return Point(size, self.burst, self.untraced_burst)

    def open(self, count: int) -> list[Callable[[], None]]:
        """Begin so many tasks of an async actor, which wait; to call these ends them."""

        async def wait() -> None:
            await asyncio.sleep(0)

        executor = execution._coroutine_executor(wait, execution.Beginning("Actor", "wait").begin)
        tracing.active = self.worker
        found: list[Callable[[], None]] = []
        for _ in range(count):
            context, task = contextvars.copy_context(), executor()
            context.run(task.send, None)
            found.append(partial(context.run, task.close))
        tracing.active = None
        return found


@contextmanager
def folders() -> Iterator[Callable[[], Path]]:
    with tempfile.TemporaryDirectory(prefix="rth-") as root:
        yield lambda: Path(tempfile.mkdtemp(dir=root))


def least(points: Sequence[Point]) -> dict[int, float]:
    """Microseconds of ours a call, by size."""
    traced = dict.fromkeys((point.size for point in points), float("inf"))
    untraced = dict(traced)
    for _ in range(REPEATS):
        for point in points:
            for found, burst in ((traced, point.traced), (untraced, point.untraced)):
                begun = time.thread_time_ns()
                burst(CALLS)
                found[point.size] = min(found[point.size], (time.thread_time_ns() - begun) / CALLS / 1e3)
    return {size: traced[size] - untraced[size] for size in traced}


def call_sites() -> dict[str, Curve]:
    with folders() as new:
        points = [Program(new(), sites=size).point(size) for size in (10, 100, 1_000, 10_000)]
        return {"call sites": Curve("us a call", least(points))}


def open_spans() -> dict[str, Curve]:
    with folders() as new:
        programs = {size: Program(new()) for size in (1, 10, 100, 1_000, 10_000)}
        waiting = {size: program.open(size) for size, program in programs.items()}
        recording = least([program.point(size) for size, program in programs.items()])
        delivery = {size: delivered(program) for size, program in programs.items()}
        for ends in waiting.values():
            for end in ends:
                end()
    return {
        "open spans": Curve("us a call", recording),
        "open spans, delivery": Curve("us a span delivered", delivery),
    }


def trace_size() -> dict[str, Curve]:
    with folders() as new:
        programs = {size: Program(new()) for size in (100, 1_000, 10_000, 100_000, 1_000_000)}
        for size, program in programs.items():
            program.burst(size // 2)
        delivery = {size: delivered(program) for size, program in programs.items()}
        recording = least([program.point(size) for size, program in programs.items()])
    return {
        "spans in a trace": Curve("us a call", recording),
        "spans in a trace, delivery": Curve("us a span delivered", delivery),
    }


def delivered(program: Program) -> float:
    """Microseconds of the shipper for each further span that it reads and puts into batches, when it has read all."""
    follower = Follower({}, Problems(), reports=True)

    def read() -> int:
        look = Folder(str(program.folder)).snapshot(set())
        return sum(len(batch.spans) for batches in follower.follow(look) for batch in batches)

    read()
    best = float("inf")
    for _ in range(READS):
        program.burst(SPANS // 2)
        begun = time.process_time_ns()
        count = read()
        best = min(best, (time.process_time_ns() - begun) / count / 1e3)
        assert count == SPANS
    return best


def publish(_self: Cluster, _job_id: str, _trace: JobTrace) -> bool:
    return True


def published(_self: Cluster, _job_id: str) -> JobTrace | None:
    return JOB


def table(curves: dict[str, Curve]) -> str:
    lines = []
    for name, curve in curves.items():
        lines.append(f"{name}: {curve.unit}, and relative to the first")
        first = next(iter(curve.figures.values()), 0)
        lines += [f"{size:>12,}{figure:>10.2f}{figure / first:>8.2f}" for size, figure in curve.figures.items()]
    return "\n".join(lines)


CURVES: dict[str, Callable[[], dict[str, Curve]]] = {
    "call sites": call_sites,
    "open spans": open_spans,
    "trace size": trace_size,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", default=",".join(CURVES), help="comma list; default: all")
    # A job whose trace its workers know, as those of Ray do.
    stand_ins.stand_in(all_traced=True, publish=publish, published=published)
    for name in parser.parse_args().curves.split(","):
        print(name, file=sys.stderr, flush=True)
        print(table(CURVES[name]()), flush=True)


if __name__ == "__main__":
    main()
