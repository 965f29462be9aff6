"""Log lines of a driver and a task as Python and Ray write them where nothing is set up."""

import logging

import harness
import ray
from saying import lines_of_workers

logger = logging.getLogger("saying plainly")


@ray.remote
def task():
    logger.warning("in a task")
    try:
        raise FileNotFoundError("no/such/file")
    except FileNotFoundError:
        logger.exception("failed")
    logging.getLogger("ray").info("by Ray's logger in a task")


def main():
    logger.info("not shown: the level is WARNING")
    logger.warning("in the driver")
    logging.getLogger("ray").info("by Ray's logger in the driver")
    ray.get(task.remote())
    return lines_of_workers(lambda line: "in a task" in line or line.startswith(("failed", "FileNotFound")), 4)


if __name__ == "__main__":
    harness.run(main)
