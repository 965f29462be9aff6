"""A driver that calls one task, once."""

import harness
import ray


@ray.remote(num_cpus=0)
def hello():
    return "hello"


if __name__ == "__main__":
    harness.run(lambda: ray.get(hello.remote()))
