"""The program of a submitted job: a task, and an exit code."""

import sys

import ray


@ray.remote
def double(number):
    return 2 * number


if __name__ == "__main__":
    ray.init(log_to_driver=False)
    assert ray.get(double.remote(2)) == 4
    sys.exit(int(sys.argv[1]))
