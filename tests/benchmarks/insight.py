"""How long the analysis takes, and how much memory, for runs of many spans.

``insight.py [SPANS]...``

The spans are made, in files as the local exporter writes them: a driver that submits tasks, which call methods of
actors and wait for them. The commands ``summary`` and ``view`` are run as a user does. Memory is their peak.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from ray_tracing_hooks import names

_PER_LINE = 100
_PER_FILE = 75_000
START = 1_700_000_000_000_000_000


def write(folder: str, spans: int) -> None:
    """Files with about so many spans."""
    made = _spans(spans)
    for number in range(10**6):
        lines = 0
        with open(os.path.join(folder, f"made-{number:04d}.jsonl"), "w", encoding="ascii") as file:
            while lines < _PER_FILE // _PER_LINE and (
                batch := [span for _, span in zip(range(_PER_LINE), made, strict=False)]
            ):
                file.write(_line(batch, lines % 64))
                lines += 1
        if lines < _PER_FILE // _PER_LINE:
            return


def _line(spans: list[str], process: int) -> str:
    attributes = {
        "service.name": "ray",
        names.DISTRO_NAME: names.SCOPE,
        "host.name": f"host-{process % 4}",
        "process.pid": 1000 + process,
        names.RESOURCE_NODE_ID: f"{process % 4:056x}",
        names.RESOURCE_WORKER_ID: f"{process:056x}",
        names.RESOURCE_PROCESS_TYPE: "worker",
        names.RESOURCE_SESSION_NAME: "session_made",
    }
    described = json.dumps(
        {"attributes": [_attribute(key, value) for key, value in attributes.items()]}, separators=(",", ":")
    )
    scope = f'{{"name":"{names.SCOPE}","version":"1.0.0"}}'
    scope_spans = f'[{{"scope":{scope},"spans":[{",".join(spans)}]}}]'
    return f'{{"resourceSpans":[{{"resource":{described},"scopeSpans":{scope_spans}}}]}}\n'


def _attribute(key: str, value: object) -> dict[str, object]:
    if isinstance(value, list):
        return {"key": key, "value": {"arrayValue": {"values": [{"stringValue": item} for item in value]}}}
    return {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}


class _Maker:
    """Spans of one run. Times go forward by what each call takes on one of 64 workers."""

    def __init__(self) -> None:
        self.random = random.Random(1)
        self.number = 0

    def span(self, name: str, kind: int, parent: str, start: int, end: int, **attributes: Any) -> tuple[str, str]:
        self.number += 1
        span_id = f"{self.random.getrandbits(64) | 1:016x}"
        parent_id = f'"parentSpanId":"{parent}",' if parent else ""
        described = json.dumps(
            [_attribute(key.replace("__", "."), value) for key, value in attributes.items()], separators=(",", ":")
        )
        return span_id, (
            f'{{"traceId":"{7:032x}","spanId":"{span_id}",{parent_id}"flags":256,"startTimeUnixNano":"{start}",'
            f'"endTimeUnixNano":"{end}","name":"{name}","kind":{kind},"attributes":{described}}}'
        )


def _spans(count: int) -> Iterator[str]:
    """Six a round: a task, submission and execution, that calls a method and waits for it, and has a span of a user."""
    maker = _Maker()
    rounds = count // 6
    driver, _ = maker.span("", 1, "", 0, 0)
    free = [START] * 64
    last = START
    for number in range(rounds):
        worker = number % 64
        where: dict[str, Any] = {
            "ray__pid": str(1000 + worker),
            "ray__job_id": "01000000",
            "ray__node_id": f"{worker % 4:056x}",
            "ray__worker_id": f"{worker:056x}",
        }
        home: dict[str, Any] = {
            "ray__pid": "1",
            "ray__job_id": "01000000",
            "ray__node_id": f"{0:056x}",
            "ray__worker_id": "d" * 56,
        }
        at = START + number * 20_000
        start = max(free[worker], at) + 100_000
        took = maker.random.randrange(1_000_000, 5_000_000)
        free[worker] = start + took
        last = max(last, start + took)
        task = f"{number:016x}" + "f" * 24 + "01000000"
        method = f"{number + (1 << 40):016x}" + f"{worker:024x}" + "01000000"
        task_call: dict[str, Any] = {"ray__remote": "function", "ray__function": "job.work"}
        actor_call: dict[str, Any] = {
            "ray__remote": "actor",
            "ray__actor_class": "Store",
            "ray__actor_method": "update",
            "ray__function": "Store.update",
        }
        caller: dict[str, Any] = {"ray__parent_task_id": "f" * 40 + "01000000", "ray__task_id": task}
        submission, text = maker.span("job.work ray.remote", 4, driver, at, at + 15_000, **task_call, **home, **caller)
        yield text
        execution, text = maker.span(
            *("job.work ray.remote_worker", 5, submission, start, start + took),
            **{**task_call, **where, "ray__task_id": task, "ray__submit_time_unix_nano": at},
        )
        yield text
        below: dict[str, Any] = {
            "ray__parent_task_id": task,
            "ray__task_id": method,
            "ray__actor_id": f"{worker:024x}01000000",
        }
        called, text = maker.span(
            "Store.update ray.remote", 4, execution, start + 100_000, start + 120_000, **actor_call, **where, **below
        )
        yield text
        _, text = maker.span(
            *("Store.update ray.remote_worker", 5, called, start + 200_000, start + 700_000),
            **{**actor_call, **where, **below},
        )
        yield text
        waited: dict[str, Any] = {
            "ray__parent_task_id": task,
            "ray__object_ids": [method + "01000000"],
            "ray__object_count": 1,
        }
        _, text = maker.span("ray.get", 1, execution, start + 130_000, start + 750_000, **where, **waited)
        yield text
        _, text = maker.span("compute", 1, execution, start + 800_000, start + took - 10_000, batch=number)
        yield text
    # The driver is written last, as it ends last.
    _, text = maker.span("job.py ray.driver", 1, "", START, last + 1_000_000, ray__job_id="01000000")
    yield text.replace('"spanId":"' + _, '"spanId":"' + driver)


def measure(spans: int) -> None:
    """Make a run, and print seconds and MiB of the commands."""
    with tempfile.TemporaryDirectory(prefix="insight-") as place:
        folder = os.path.join(place, "spans")
        os.mkdir(folder)
        write(folder, spans)
        size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
        print(f"{spans:,} spans, {size / 2**20:,.0f} MiB")
        for command in (["summary"], ["view", "--output", os.path.join(place, "report.html")]):
            seconds, used, mebibytes = _run(command, folder)
            print(
                f"  {command[0]}: {seconds:.1f} s ({used:.1f} s of processor time), peak {mebibytes:,.0f} MiB",
                flush=True,
            )


def _run(command: list[str], folder: str) -> tuple[float, float, float]:
    """Seconds, seconds of processor time with that of helping processes, and peak memory in MiB of a command."""
    began = time.perf_counter()
    program = [sys.executable, "-m", "ray_tracing_hooks", *command, folder]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise subprocess.CalledProcessError(process.returncode, program)
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


if __name__ == "__main__":
    for asked in sys.argv[1:] or ["10000", "100000", "1000000"]:
        measure(int(asked))
