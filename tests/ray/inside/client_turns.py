"""Calls the hook once; is a Ray Client, an untraced driver, a traced one and a client again, which ends by an error."""

import os

import lean
import ray

from ray_tracing_hooks import local

HOOKS = {"untraced": None, "traced": "ray_tracing_hooks.local:setup"}


def named(name):
    def function():
        return name

    function.__name__ = function.__qualname__ = name
    return ray.remote(function)


def main():
    local.setup()
    for turn in ("client", "untraced", "traced"):
        if turn == "client":
            ray.init(os.environ["RTH_ADDRESS"], log_to_driver=False)
        else:
            lean.start("local", num_cpus=1, _tracing_startup_hook=HOOKS[turn])
        assert ray.get(named(turn).remote()) == turn
        ray.shutdown()
    ray.init(os.environ["RTH_ADDRESS"], log_to_driver=False)
    ray.get(named("again").remote())
    raise ValueError("on purpose")


if __name__ == "__main__":
    main()
