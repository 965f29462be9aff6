"""A long run: millions of spans while workers come and go. Is everything there, and does nothing grow?

    python tests/benchmarks/soak.py --spans 2000000 --minutes 30

A driver calls tasks whose workers end after 200 calls, actors that are killed and made again, and one actor that stays.
Each call ends ten user spans. Every half a minute the memory, the open files and the threads of the driver, of the
actor that stays and of the shipper are looked at, and the files in the spool. At the end the spans in the local files
are compared with those that the calls say they ended: none may be missing, none may be there twice. Ends with code 1 if
any is, or if something grew in the second half of the run: by then caches are full, and what still grows is a leak.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

USER_SPANS = 10
SPANS_PER_CALL = USER_SPANS + 2  # and the submission and the execution
SAMPLE_SECONDS = 30.0
IN_FLIGHT = 40
CALLS_OF_AN_ACTOR = 400
MAX_CALLS = 200
MAX_GROWTH = 1.05
SLACK = {"MiB": 1.0, "files": 2.0, "threads": 2.0, "spool files": 12.0, "spool MiB": 24.0}
"""Growth that is no trend: a worker more or less, a segment that is about to be full."""


def sample(processes: dict[str, psutil.Process], spool: Path) -> dict[str, float]:
    """What each process holds now, and the spool."""
    found: dict[str, float] = {}
    for name, process in processes.items():
        with process.oneshot():
            found[f"{name} MiB"] = round(process.memory_info().rss / 2**20, 1)
            found[f"{name} files"] = process.num_fds()
            found[f"{name} threads"] = process.num_threads()
    segments = [path.stat().st_size for path in spool.glob("*") if path.is_file()]
    found["spool files"] = len(segments)
    found["spool MiB"] = round(sum(segments) / 2**20, 1)
    return found


def shipper_of(spool_root: Path) -> psutil.Process:
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "ray_tracing_hooks._ship" in command and any(part.startswith(str(spool_root)) for part in command):
            return process
    raise LookupError(f"no shipper of {spool_root}")


def program(folder: Path, calls: int, seconds: float) -> dict[str, Any]:
    """Make the calls, evenly over the time. How many spans were to be there, and the samples."""
    import ray
    from opentelemetry import trace

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
        _temp_dir=str(folder / "ray"),
        _tracing_startup_hook="ray_tracing_hooks.local:setup",
    )
    tracer = trace.get_tracer("soak")

    def work(call: int) -> int:
        for index in range(USER_SPANS):
            with tracer.start_as_current_span("step", attributes={"call": call, "index": index}):
                pass
        return USER_SPANS

    @ray.remote(max_calls=MAX_CALLS, max_retries=0)
    def task(call: int) -> int:
        return work(call)

    class Worker:
        def call(self, call: int) -> int:
            return work(call)

        def pid(self) -> int:
            return os.getpid()

    actor: Any = ray.remote(num_cpus=0)(Worker)
    stays, comes = actor.remote(), actor.remote()
    processes = {
        "driver": psutil.Process(),
        "actor": psutil.Process(ray.get(stays.pid.remote())),
        "shipper": shipper_of(folder),
    }
    spool = Path(next(part for part in processes["shipper"].cmdline() if part.startswith(str(folder))))
    samples: list[dict[str, float]] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(SAMPLE_SECONDS):
            found = {"s": round(time.monotonic() - begun), "calls": made, **sample(processes, spool)}
            samples.append(found)
            print(json.dumps(found), flush=True)

    begun = time.monotonic()
    made = user_spans = others = 0
    others += 2 + 2 + 2  # two actors made, one asked for its pid
    threading.Thread(target=look, daemon=True).start()
    flying: list[Any] = []
    calls_of_actor = 0
    while made < calls:
        ahead = made / calls * seconds - (time.monotonic() - begun)
        if ahead > 0.05:
            time.sleep(ahead)
        if calls_of_actor >= CALLS_OF_AN_ACTOR:
            user_spans += sum(ray.get(flying))
            flying = []
            ray.kill(comes)
            comes, calls_of_actor = actor.remote(), 0
            others += 2
        flying += [task.remote(made), comes.call.remote(made), stays.call.remote(made)]
        made += 3
        calls_of_actor += 1
        if len(flying) >= IN_FLIGHT:
            ready, flying = ray.wait(flying, num_returns=len(flying) // 2)
            user_spans += sum(ray.get(ready))
    user_spans += sum(ray.get(flying))
    done.set()
    ray.shutdown()
    # The driver's own span is one more.
    return {"expected": user_spans + 2 * made + others + 1, "samples": samples, "seconds": time.monotonic() - begun}


def span_ids(folder: Path) -> Iterator[int]:
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as lines:
            for line in lines:
                for resource in json.loads(line)["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        for span in scope["spans"]:
                            yield int(span["spanId"], 16)


def growth(samples: list[dict[str, float]]) -> dict[str, tuple[float, float]]:
    """What is higher in the last quarter than in the third, by more than what is no trend."""
    quarter = max(len(samples) // 4, 1)
    found = {}
    for name in samples[0].keys() - {"s", "calls"}:
        before = statistics.median(sample[name] for sample in samples[-2 * quarter : -quarter])
        last = statistics.median(sample[name] for sample in samples[-quarter:])
        slack = next(amount for unit, amount in sorted(SLACK.items(), key=lambda item: -len(item[0])) if unit in name)
        if last > before * MAX_GROWTH and last - before > slack:
            found[name] = (before, last)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spans", type=int, default=2_000_000)
    parser.add_argument("--minutes", type=float, default=30)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        os.environ.update(
            RAY_AUTH_MODE="disabled",
            RAY_USAGE_STATS_ENABLED="0",
            RAY_TRACING_LOCAL_DIR=str(folder / "spans"),
            RAY_TRACING_LOCAL_MAX_BYTES=str(64 * 2**30),
            # The end of the program waits for the delivery of all that was recorded.
            RAY_TRACING_FLUSH_TIMEOUT="600",
        )
        run = program(folder, -(-chosen.spans // SPANS_PER_CALL), chosen.minutes * 60)
        ids: set[int] = set()
        found = 0
        for span_id in span_ids(folder / "spans"):
            found += 1
            ids.add(span_id)
    grown = growth(run["samples"])
    print(
        f"{run['expected']:,} spans expected, {found:,} found, {found - len(ids):,} of them twice, "
        f"in {run['seconds'] / 60:.1f} minutes"
    )
    for what, (first, last) in sorted(grown.items()):
        print(f"grew: {what} from {first:g} to {last:g}")
    if not grown:
        print(
            "nothing grew: memory, open files and threads of the driver, an actor and the shipper, files of the spool"
        )
    return int(bool(grown) or found != run["expected"] or found != len(ids))


if __name__ == "__main__":
    sys.exit(main())
