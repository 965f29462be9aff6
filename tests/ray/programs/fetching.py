"""A task and an actor that send requests by an instrumented library."""

import os

import harness
import ray
import requests


@ray.remote
def fetch(what):
    return requests.get(os.environ["RTH_SERVER"] + what, timeout=30).text


@ray.remote
class Fetcher:
    def fetch(self, what):
        return requests.get(os.environ["RTH_SERVER"] + what, timeout=30).text


def main():
    return [
        requests.get(os.environ["RTH_SERVER"] + "driver", timeout=30).text,
        ray.get(fetch.remote("task")),
        ray.get((_fetcher := Fetcher.remote()).fetch.remote("actor")),
    ]


if __name__ == "__main__":
    harness.run(main)
