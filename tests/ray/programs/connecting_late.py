"""Never calls ``ray.init()``: its first call of Ray, which its argument names, connects to the cluster of the
environment.
"""

import json
import sys

import ray


@ray.remote
def double(a):
    return 2 * a


@ray.remote
class Actor:
    def one(self):
        return 1


def task():
    return ray.get([double.remote(1), double.remote(2)])


def actor():
    return ray.get((_actor := Actor.remote()).one.remote())


def put():
    return ray.get(ray.put(3))


print("RESULT " + json.dumps({"task": task, "actor": actor, "put": put}[sys.argv[1]]()))
