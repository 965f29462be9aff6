"""Ten tasks, and how long the shutdown took."""

import os
import time

import harness
import ray


@ray.remote
def work(number):
    return number


def main():
    return ray.get([work.remote(number) for number in range(10)])


if __name__ == "__main__":
    os.environ["RTH_END"] = "nothing"
    harness.run(main)
    began = time.monotonic()
    ray.shutdown()
    print("SHUTDOWN", time.monotonic() - began)
