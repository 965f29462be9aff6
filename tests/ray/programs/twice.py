"""Connects to a traced cluster, to an untraced one, and to the traced one again."""

import json
import os
import sys

import ray


@ray.remote
def double(a):
    return 2 * a


@ray.remote
class Actor:
    def one(self):
        return 1


def main():
    results = []
    for address in (os.environ["RTH_ADDRESS"], sys.argv[1], sys.argv[2]):
        ray.init(address=address, log_to_driver=False)
        results.append(
            [ray.get((_actor := Actor.options(num_cpus=0).remote()).one.remote()), ray.get(double.remote(1))]
        )
        ray.shutdown()
    print("RESULT " + json.dumps(results))


if __name__ == "__main__":
    main()
