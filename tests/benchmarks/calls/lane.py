"""One contender: a driver with a cluster of its own, which does what it is told, one line each.

    python lane.py HOOK

Reads from standard input, and answers each with one line, or with ``FAILED`` and why:

    prepare NAME        make a loop and what it calls, and run it once
    run WARM SECONDS    run it for so long, and then for so long: calls in both, and calls a second of the latter
    drop                let go of it

The driver is a child of this program, which sees to it that nothing of the cluster stays behind.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from family import be_ancestor, reap

MOST_SECONDS_TO_END = 30


def keep(hook: str) -> int:
    be_ancestor()
    with subprocess.Popen([sys.executable, __file__, "--driver", hook]) as driver:
        code = driver.wait()
    reap(MOST_SECONDS_TO_END)
    return code


def drive(hook: str) -> None:
    import ray
    from loops import CORE, Loop

    options = {"_tracing_startup_hook": hook} if hook else {}
    ray.init(
        "local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=300_000_000, **options
    )
    loop: Loop | None = None
    print("READY", flush=True)
    for line in sys.stdin:
        command, _, arguments = line.strip().partition(" ")
        try:
            answer = "DONE"
            if command == "prepare":
                loop = CORE[arguments]()
                loop()
            elif command == "run":
                assert loop is not None
                warm, seconds = map(float, arguments.split())
                before, _ = run(loop, warm)
                count, rate = run(loop, seconds)
                answer = f"RAN {before + count} {rate}"
            else:
                loop = None
        except Exception as error:  # noqa: BLE001  what a hook breaks is told, and the others go on
            answer = f"FAILED {type(error).__name__}: {' '.join(str(error).split())[-300:]}"
        print(answer, flush=True)
    ray.shutdown()


def run(loop: Callable[[], int], seconds: float) -> tuple[int, float]:
    """At least once: how many calls, and how many a second."""
    begun, count = time.perf_counter(), 0
    while not count or time.perf_counter() - begun < seconds:
        count += loop()
    return count, count / (time.perf_counter() - begun)


if __name__ == "__main__":
    if sys.argv[1] == "--driver":
        drive(sys.argv[2])
    else:
        sys.exit(keep(sys.argv[1]))
