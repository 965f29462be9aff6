"""Workers that end in every way, all at once, each while it records spans. The arguments are a folder and the ways."""

import asyncio
import ctypes
import os
import signal
import sys
import time

import harness
import ray
from ray.exceptions import RayError
from recording import heard, recording, say

LONG = 120


def wait():
    """Longer than anybody waits. A cancellation is noticed between two sleeps."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        time.sleep(0.01)


@ray.remote(num_cpus=0, max_retries=0)
def task(how, folder):
    with recording(how, folder, pace=0 if how == "sigkill" else 0.002):
        if how == "exception":
            raise RuntimeError("the task fails")
        if how == "sys_exit":
            sys.exit(3)
        if how == "sys_exit_0":
            sys.exit(0)
        if how == "os_exit":
            os._exit(1)
        if how == "sigsegv":
            ctypes.string_at(0)
        if how == "sigabrt":
            os.abort()
        if how in {"sigterm", "sigkill", "cancel", "cancel_force"}:
            wait()


@ray.remote(num_cpus=0, max_calls=1)
def once(how, folder):
    with recording(how, folder):
        pass


@ray.remote(num_cpus=0)
class Actor:
    def method(self, how, folder):
        with recording(how, folder):
            if how == "exit_actor":
                ray.actor.exit_actor()
            if how in {"ray_kill", "ray_kill_restart"}:
                wait()


@ray.remote(num_cpus=0)
class AsyncActor:
    async def method(self, how, folder):
        with recording(how, folder):
            if how == "async_exit_actor":
                ray.actor.exit_actor()
            # Ray lets a call that runs come to its end before an async actor obeys SIGTERM.
            await asyncio.to_thread(heard, folder, f"{how}.signalled")


def begin(how, folder):
    """The call of this way, and the actor that it is made to, which an end out of scope must not keep."""
    if how.startswith("async_"):
        actor = AsyncActor.remote()
        return actor.method.remote(how, folder), actor
    if how in {"exit_actor", "ray_kill", "out_of_scope"}:
        actor = Actor.remote()
        return actor.method.remote(how, folder), None if how == "out_of_scope" else actor
    if how == "ray_kill_restart":
        actor = Actor.options(max_restarts=1).remote()
        return actor.method.remote(how, folder), actor
    if how == "max_calls":
        return once.remote(how, folder), None
    return task.remote(how, folder), None


def end(how, ref, actor, pid, folder):
    """Do to the worker from outside what this way asks for."""
    if how in {"sigterm", "async_sigterm"}:
        os.kill(pid, signal.SIGTERM)
        say(folder, f"{how}.signalled", pid)
    elif how in {"sigkill", "async_sigkill"}:
        os.kill(pid, signal.SIGKILL)
    elif how in {"cancel", "cancel_force"}:
        ray.cancel(ref, force=how == "cancel_force")
    elif how == "ray_kill":
        ray.kill(actor)
    elif how == "ray_kill_restart":
        ray.kill(actor, no_restart=False)


def outcome(ref):
    try:
        ray.get(ref, timeout=60)
    except RayError as error:
        return type(error).__name__
    return "returned"


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main():
    folder, *ways = sys.argv[1:]
    outcomes = {}
    # A worker that is to be reaped must not be put to other use before.
    for together in ([how for how in ways if how != "reaped"], [how for how in ways if how == "reaped"]):
        begun = {how: begin(how, folder) for how in together}
        for how, (ref, actor) in begun.items():
            pid = heard(folder, f"{how}.pid")
            end(how, ref, actor, pid, folder)
            outcomes[how] = outcome(ref)
    deadline = time.monotonic() + 60
    for how in ways:
        pid = heard(folder, f"{how}.pid")
        while how not in {"exception", "cancel"} and is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
    return outcomes


if __name__ == "__main__":
    harness.run(main)
