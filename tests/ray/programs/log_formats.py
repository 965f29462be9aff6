"""Log lines of a driver and of tasks in the format that ``RTH_ENCODING`` names, and one in a plain format.

Gives the ids of the span of each task.
"""

import logging
import os

import harness
import ray
from opentelemetry import trace

logger = logging.getLogger("orders")


def plain():
    """A logger with a format of its own. Ray sets the format of those that there are when a worker starts."""
    found = logging.getLogger("plain")
    if not found.handlers:
        found.propagate = False
        found.addHandler(logging.StreamHandler())
        ids = "trace_id=%(trace_id)s span_id=%(span_id)s"
        found.handlers[0].setFormatter(logging.Formatter(f"%(levelname)s:%(name)s:%(message)s {ids}"))
    return found


@ray.remote(num_cpus=0)
def charge(order):
    logger.info("charging order %d", order)
    plain().warning("stock is low for order %d", order)
    try:
        raise ValueError("card refused")
    except ValueError:
        logger.exception("order %d failed", order)
    print("printed for order", order)
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def main():
    return ray.get([charge.remote(order) for order in range(3)])


if __name__ == "__main__":
    harness.run(main, logging_config=ray.LoggingConfig(encoding=os.environ["RTH_ENCODING"]))
