"""Changes of a running cluster, while an application of Ray Serve and an actor get requests all the time.

``main`` makes the changes of :data:`STEPS` one after the other, each once enough requests have ended since the last.
With the argument ``late``, the cluster has no hook, and gets one.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time

import harness
import ray
from ports import free_port
from ray import serve

ENOUGH = 15
"""Requests of each thread in each phase."""

OTHER = os.environ.get("RTH_OTHER_FOLDER")
STEPS = (
    ("dormant", ()),
    ("on", ("enable",)),
    ("filtered", ("configure", "exclude=Poller.left_out", "rate_limit=Poller.poll=1")),
    (
        "sampled",
        (
            *("configure", "--unset", "exclude", "--unset", "RAY_TRACING_RATE_LIMIT"),
            *("OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0"),
        ),
    ),
    (
        "moved",
        (
            *("configure", "--unset", "OTEL_TRACES_SAMPLER", "--unset", "OTEL_TRACES_SAMPLER_ARG"),
            *(f"local_dir={OTHER}", "arguments=1"),
        ),
    ),
    ("as_started", ("configure", "--reset")),
    ("off", ("disable",)),
)
LATE = (
    ("dormant", ()),
    ("on", ("enable", "--hook", "ray_tracing_hooks.local:setup", "--actors")),
    ("off", ("disable",)),
)


@ray.remote(num_cpus=0)
class Poller:
    def poll(self, number):
        return number

    def left_out(self, number):
        return number


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0}, graceful_shutdown_wait_loop_s=0.1)
class App:
    async def __call__(self, request):
        return f"answer {request.query_params['number']}"


class Load:
    """Requests of some threads, which go on until the end."""

    def __init__(self, port, handle, poller):
        self.lock = threading.Lock()
        self.ended, self.failed = [], []
        self.done = {}
        self.is_over = False
        self.threads = [
            threading.Thread(target=self.run, args=(name, make))
            for name, make in (
                ("http 0", lambda: self.by_http(port)),
                ("http 1", lambda: self.by_http(port)),
                ("handle", lambda: lambda number: handle.remote(_Request(number)).result() == f"answer {number}"),
                ("actor", lambda: lambda number: self.of_actor(poller, number)),
            )
        ]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def by_http(port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

        def request(number):
            connection.request("GET", f"/?number={number}")
            response = connection.getresponse()
            return response.read().decode() == f"answer {number}" and response.status == 200

        return request

    @staticmethod
    def of_actor(poller, number):
        return ray.get([poller.poll.remote(number), poller.left_out.remote(number)]) == [number, number]

    def run(self, name, make):
        request, number = make(), 0
        while not self.is_over:
            number += 1
            began = time.time_ns()
            try:
                problem = None if request(number) else "wrong answer"
            except Exception as error:
                problem, request = repr(error), make()
            with self.lock:
                if problem:
                    self.failed.append((name, number, problem))
                self.ended.append((name, began, time.time_ns()))
                self.done[name] = number

    def wait(self):
        """Until each thread has sent and got enough requests from now on."""
        with self.lock:
            enough = {name: self.done.get(name, 0) + 1 + ENOUGH for name in ("http 0", "http 1", "handle", "actor")}
        while any(self.done.get(name, 0) < number for name, number in enough.items()):
            time.sleep(0.01)

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()


class _Request:
    """What a handle passes on in place of a request by HTTP."""

    def __init__(self, number):
        self.query_params = {"number": str(number)}


def command(*words):
    """What a command has said, and its exit code."""
    address = os.environ["RTH_ADDRESS"]
    done = subprocess.run(
        # A busy machine may need longer to answer than the command waits by default.
        [sys.executable, "-m", "ray_tracing_hooks", *words, "--timeout", "60", "--json", "--address", address],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return {"code": done.returncode, **json.loads(done.stdout)}


def main():
    port = free_port()
    serve.start(http_options={"port": port}, proxy_location="HeadOnly")
    handle = serve.run(App.bind(), route_prefix="/")
    poller = Poller.remote()
    load = Load(port, handle, poller)
    phases, said = {}, {}
    try:
        load.wait()
        for phase, words in LATE if sys.argv[1:] == ["late"] else STEPS:
            if words:
                said[phase] = command(*words)
            began = time.time_ns()
            load.wait()
            phases[phase] = (began, time.time_ns())
    finally:
        load.end()
    serve.shutdown()
    return {"phases": phases, "said": said, "ended": load.ended, "failed": load.failed}


if __name__ == "__main__":
    harness.run(main)
