"""Connecting to a cluster, again and again and in every way, and what is forwarded from it."""

import contextlib
import io
import json
import logging
import os
import re
import time

import ray
import scenarios
from scenarios import attempt, scenario

ADDRESS = os.environ["RTH_ADDRESS"]


@ray.remote
def double(x):
    return 2 * x


@ray.remote
class Counter:
    def __init__(self):
        self.total = 0

    def add(self, n=1):
        self.total += n
        return self.total


@ray.remote
def log(text):
    logger = logging.getLogger("conform")
    logger.info("info %s", text)
    logger.debug("debug %s", text)
    try:
        raise KeyError(text)
    except KeyError:
        logger.exception("caught")
    return [logging.getLogger().level, [type(each).__name__ for each in logging.getLogger().handlers]]


@contextlib.contextmanager
def connection(**options):
    """Another connection than that of the program, which ends it."""
    ray.shutdown()
    try:
        yield ray.init(ADDRESS, **{"log_to_driver": False, **options})
    finally:
        ray.shutdown()


def forwarded(stream, *marks):
    """What has been written to ``stream`` as soon as all of ``marks`` are in it."""
    deadline = time.monotonic() + 30
    while not all(mark in stream.getvalue() for mark in marks):
        assert time.monotonic() < deadline, stream.getvalue()
        time.sleep(0.05)
    lines = {line for line in stream.getvalue().splitlines() if any(mark in line for mark in marks)}
    return sorted(scenarios.same_in_each_run(re.sub(r"\x1b\[\d+m", "", line)) for line in lines)


@scenario
def a_second_init():
    before = ray.get_runtime_context().get_job_id()
    context = ray.init(ADDRESS, ignore_reinit_error=True)
    return [
        sorted(context.address_info),
        context.python_version,
        ray.get_runtime_context().get_job_id() == before,
        attempt(lambda: ray.init(ADDRESS)),
        ray.get(double.remote(1)),
        ray.is_initialized(),
    ]


@scenario
def namespaces():
    with connection(namespace="conform-one") as context:
        kept = Counter.options(name="kept", lifetime="detached").remote()
        ray.get(kept.add.remote(5))
        first = [
            ray.get_runtime_context().namespace,
            context.disconnect.__name__,
            attempt(lambda: Counter.options(name="kept").remote()),
            ray.util.list_named_actors(),
        ]
    with connection(namespace="conform-two"):
        second = [
            attempt(lambda: ray.get_actor("kept")),
            ray.get(ray.get_actor("kept", namespace="conform-one").add.remote()),
            # Those that other programs left behind may be there as well.
            [each for each in ray.util.list_named_actors(all_namespaces=True) if each["name"] == "kept"],
        ]
        ray.kill(ray.get_actor("kept", namespace="conform-one"))
    return [first, second]


@scenario
def what_outlives_a_connection():
    with connection():
        anonymous = len(ray.get_runtime_context().namespace)
        ref, actor = double.remote(2), Counter.remote()
        ray.get([ref, actor.add.remote()])
        job = ray.get_runtime_context().get_job_id()
    with connection():
        return [
            anonymous,
            job != ray.get_runtime_context().get_job_id(),
            ray.get([double.remote(i) for i in range(3)]),
            attempt(lambda: ray.get(actor.add.remote())),
            attempt(lambda: ray.get(ref, timeout=1))[:2],
        ]


@scenario
def without_a_connection():
    ray.shutdown()
    ray.shutdown()
    return [
        ray.is_initialized(),
        attempt(ray.runtime_context.RuntimeContext(ray._private.worker.global_worker).get_job_id),
        attempt(lambda: ray._private.worker.global_worker.check_connected()),
    ]


@scenario
def logs_as_json():
    config = ray.LoggingConfig(encoding="JSON", log_level="DEBUG")
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        with contextlib.redirect_stderr(io.StringIO()) as errors, connection(log_to_driver=True, logging_config=config):
            # Ray's own handlers have been given the stream of this time.
            set_up = ray.get(log.remote("text"))
            forwarded(errors, "info text", "debug text", "caught")
            entries = [json.loads(line[line.index("{") :]) for line in errors.getvalue().splitlines() if "{" in line]
        said = [entry for entry in entries if entry.get("filename") == os.path.basename(__file__)]
        # That a line says which trace it belongs to is meant to be noticed.
        of_trace = {"trace_id", "span_id", "trace_flags"}
        return [
            set_up,
            [[sorted(entry.keys() - of_trace), entry["levelname"], entry["message"]] for entry in said],
            [scenarios.same_in_each_run(entry.get("exc_text", "")) for entry in said],
        ]
    finally:
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)


if __name__ == "__main__":
    scenarios.run()
