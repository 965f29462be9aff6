"""A program that knows nothing of tracing, killed or interrupted on request. When killed it begins Ray with a call."""

import os
import signal
import sys

import ray


@ray.remote
def add(number):
    return number + 1


if sys.argv[1:] != ["killed"]:
    ray.init()
print(ray.get([add.remote(number) for number in range(3)]))
if sys.argv[1:] == ["killed"]:
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1:] == ["interrupted"]:
    os.killpg(os.getpgid(0), signal.SIGINT)  # as a terminal does at Ctrl-C
    signal.pause()
sys.exit(3)
