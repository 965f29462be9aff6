"""Calls tasks at its own pace for RTH_SECONDS, and returns how many it made in each tenth of that time."""

import os
import time

import harness
import ray


@ray.remote
def work(number):
    return number


def main():
    seconds = float(os.environ["RTH_SECONDS"])
    ray.get([work.remote(number) for number in range(20)])
    began = time.monotonic()
    made = [0] * 10
    while (now := time.monotonic() - began) < seconds:
        ray.get([work.remote(number) for number in range(10)])
        made[min(9, int(10 * now / seconds))] += 10
    return made


if __name__ == "__main__":
    harness.run(main)
