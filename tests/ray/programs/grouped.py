"""Waiting for placement groups in each way: the second one is there when the first one is gone."""

import asyncio
import threading
import traceback

import harness
import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group


async def awaits(ref):
    return await ref


def main():
    first = placement_group([{"CPU": 2}])
    ready = first.ready()
    groups = [ray.get(ready), asyncio.run(awaits(first.ready())), ray.get(ray.wait([ready])[0][0])]
    second = placement_group([{"CPU": 2}])
    threading.Timer(0.3, remove_placement_group, [first]).start()
    waits = [second.wait(0), second.wait()]
    try:
        PlacementGroup(None).ready()
    except AttributeError as error:
        frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return [[group.id.hex() for group in groups], second.id.hex(), waits, frames]


if __name__ == "__main__":
    harness.run(main)
