"""Log lines of a driver, of tasks and of actors, as Ray writes them in JSON."""

import asyncio
import glob
import json
import logging
import os
import threading
import time

import harness
import ray

logger = logging.getLogger("saying")
own = logging.getLogger("own")  # whose lines have nothing of Ray, which does not work in a forked child
own.propagate = False
own.addHandler(logging.StreamHandler())
own.handlers[0].setFormatter(
    logging.Formatter(
        json.dumps({name: f"%({name})s" for name in ("message", "filename", "trace_id", "span_id", "trace_flags")})
    )
)


def in_thread(text):
    thread = threading.Thread(target=lambda: logger.warning(text))
    thread.start()
    thread.join()


@ray.remote(num_cpus=0)
def inner():
    logger.warning("inner")


@ray.remote(num_cpus=0)
def outer():
    logger.warning("before %s", "inner")
    ray.get(inner.remote())
    logger.error("after inner", extra={"span_id": "the program's own"})
    try:
        raise FileNotFoundError("no/such/file")
    except FileNotFoundError:
        logger.exception("failed")


@ray.remote(num_cpus=0)
class Together:
    """Both calls have begun when they speak."""

    def __init__(self):
        self.there = 0

    async def say(self, text):
        self.there += 1
        while self.there < 2:
            await asyncio.sleep(0.01)
        logger.warning(text)


def lines_of_workers(wanted, count):
    """The wanted lines that workers have written, as soon as they are so many."""
    session = ray._private.worker._global_node.get_session_dir_path()
    deadline = time.monotonic() + 20
    while True:
        found = []
        for path in glob.glob(os.path.join(session, "logs", "worker-*.err")):
            with open(path) as file:
                found += [line.rstrip("\n") for line in file if wanted(line)]
        if len(found) >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def main():
    logger.warning("in the driver")
    in_thread("in a thread of the driver")
    if not (child := os.fork()):
        own.warning("in a fork")
        os._exit(0)
    os.waitpid(child, 0)
    ray.get(outer.remote())
    together = Together.remote()
    ray.get([together.say.remote("first"), together.say.remote("second")])
    own_job = f'"job_id": "{ray.get_runtime_context().get_job_id()}"'
    lines = lines_of_workers(lambda line: "saying.py" in line and own_job in line, 6)
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    harness.run(main, logging_config=ray.LoggingConfig(encoding="JSON"))
    logger.warning("after the end")
    ray.init(address=os.environ["RTH_ADDRESS"], log_to_driver=False)
    own.warning("again")
    ray.shutdown()
