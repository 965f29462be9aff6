"""Processes, threads, coroutines and signals of a program's own, in the driver, in tasks and in actors."""

import asyncio
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import lean
import ray
from opentelemetry import trace
from recording_too import record

tracer = trace.get_tracer("processes")


def in_child(work):
    """The exit code of a forked child that does this."""
    pid = os.fork()
    if pid == 0:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def pool(method, function, arguments):
    with multiprocessing.get_context(method).Pool(2) as workers:
        results = workers.map(function, arguments)
        # Let them end by themselves: on SIGTERM a child of a Ray process may wait for Ray's threads, which it has not.
        workers.close()
        workers.join()
    return results


@ray.remote
def forks():
    """Forks from a thread while two others record, and children that fork."""
    stop = threading.Event()
    codes, recorded = [], []

    def keep_recording():
        count = 0
        while not stop.is_set():
            count += record("beside a fork")
        recorded.append(count)

    threads = [threading.Thread(target=keep_recording) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        codes.append(in_child(lambda: record("child of a task", 3) + in_child(lambda: record("grandchild of a task"))))
    stop.set()
    for thread in threads:
        thread.join()
    return codes, sum(recorded)


@ray.remote
def pools():
    forked = pool("fork", record, ["in a pool of a task"] * 4)
    return forked, pool("spawn", math.sqrt, [4.0]), pool("forkserver", math.sqrt, [9.0])


@ray.remote
def programs():
    """What a program that is started sees of its environment and of open files."""
    record("before a program")
    look = "import os; print(repr((dict(os.environ), [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir("
    look += "'/proc/self/fd') if os.path.islink(f'/proc/self/fd/{fd}')])))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, close_fds=False, check=True)
    environ, files = eval(done.stdout)
    changed = {name for name in {*environ, *os.environ} if environ.get(name) != os.environ.get(name)}
    return sorted(changed - {"LC_CTYPE"}), [file for file in files if file.endswith(".spool")]


@ray.remote
def signals():
    """A handler that records, at a high rate, over a loop that does."""
    handled = 0

    def handle(number, frame):
        nonlocal handled
        count = record("in a handler")  # in which another signal may come
        handled += count

    before = signal.signal(signal.SIGPROF, handle)
    # By the processor's time, or on a busy machine there would be nothing but handlers.
    signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
    recorded, until = 0, time.monotonic() + 1
    while time.monotonic() < until or handled < 50:
        recorded += record("between signals")
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)
    return recorded, handled


@ray.remote(num_cpus=0)
class Outlived:
    """What goes on when the call that started it has returned."""

    def start(self):
        self.go_on, begun = threading.Event(), threading.Event()

        def work():
            with tracer.start_as_current_span("of a thread that outlives its call"):
                begun.set()
                self.go_on.wait(60)

        self.thread = threading.Thread(target=work)
        self.thread.start()
        begun.wait(60)

    def finish(self):
        self.go_on.set()
        self.thread.join()


@ray.remote(num_cpus=0)
class OutlivedCoroutine:
    async def start(self):
        self.go_on, begun = asyncio.Event(), asyncio.Event()

        async def work():
            with tracer.start_as_current_span("of a coroutine that outlives its call"):
                begun.set()
                await self.go_on.wait()
                record("in a coroutine that outlives its call")

        self.work = asyncio.create_task(work())
        await begun.wait()

    async def finish(self):
        self.go_on.set()
        await self.work


def outlive():
    """A child that records before and after its parent's end."""
    parent = os.getpid()
    told, tell = os.pipe()
    if os.fork():
        os.read(told, 1)
        return
    record("child of the driver")
    os.write(tell, b".")
    for descriptor in (1, 2):
        os.close(descriptor)
    while os.getppid() == parent:
        time.sleep(0.02)
    record("after the driver's end")
    os._exit(0)


def main():
    options = {"_tracing_startup_hook": os.environ["RTH_HOOK"]} if os.environ.get("RTH_HOOK") else {}
    lean.start("local", num_cpus=2, log_to_driver=False, **options)
    result = {
        "forks": ray.get(forks.remote()),
        "pools": ray.get(pools.remote()),
        "programs": ray.get(programs.remote()),
        "signals": ray.get(signals.remote()),
        "pool of the driver": pool("fork", record, ["in a pool of the driver"] * 4),
        "child of the driver": in_child(lambda: record("child of the driver", 2)),
    }
    for outlived in (Outlived.remote(), OutlivedCoroutine.remote()):
        ray.get(outlived.start.remote())
        ray.get(outlived.finish.remote())
    outlive()
    ray.shutdown()
    # Not by sys.exit(): that may hang in a child of a Ray process, since it waits for Ray's threads, which it has not.
    result["last child"] = in_child(lambda: record("child of a driver that has shut down"))
    print("RESULT", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
