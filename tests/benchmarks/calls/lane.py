"""One contender: a driver with a cluster of its own, which runs the loops that it is told to, one line each.

    python lane.py HOOK

Reads ``loop name<TAB>seconds`` from standard input and prints ``RATE <calls a second>``.
"""

from __future__ import annotations

import sys
import time

import ray
from loops import LOOPS, Loop

WARM_SECONDS = 0.3


def main(hook: str) -> None:
    options = {"_tracing_startup_hook": hook} if hook else {}
    ray.init(
        "local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=300_000_000, **options
    )
    ready: dict[str, Loop] = {}
    print("READY", flush=True)
    for line in sys.stdin:
        name, _, seconds = line.rstrip("\n").partition("\t")
        if name not in ready:
            ready[name] = LOOPS[name]()
        run(ready[name], WARM_SECONDS)
        print("RATE", run(ready[name], float(seconds)), flush=True)
    ray.shutdown()


def run(loop: Loop, seconds: float) -> float:
    begun = now = time.perf_counter()
    count = 0
    while now - begun < seconds:
        count += loop()
        now = time.perf_counter()
    return count / (now - begun)


if __name__ == "__main__":
    main(sys.argv[1])
