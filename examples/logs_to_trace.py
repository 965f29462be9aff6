"""From an error in Ray's logs to its trace, and from a span to all lines that it logged.

Run it, and then the command that it prints:

    python examples/logs_to_trace.py

Ray writes its logs as JSON here, and each line has the ids of its trace and span. The program searches for errors, as
you would with ``jq`` or a log viewer. You see the command for the trace of the error, and all lines of its span.
"""

import json
import logging
import time
from pathlib import Path

import ray

logger = logging.getLogger("orders")


@ray.remote
def charge(order):
    logger.info("charging order %d", order)
    if order == 3:
        logger.error("the card of order %d was refused", order)
        raise ValueError("card refused")


@ray.remote
class Shop:
    def sell(self, order):
        try:
            ray.get(charge.remote(order))
        except ValueError:
            return False
        return True


def lines(logs):
    texts = [text for path in logs.glob("worker-*.err") for text in path.read_text().splitlines()]
    return [json.loads(text) for text in texts if text.startswith("{") and text.endswith("}")]


if __name__ == "__main__":
    cluster = ray.init(
        log_to_driver=False,
        logging_config=ray.LoggingConfig(encoding="JSON"),
        _tracing_startup_hook="ray_tracing_hooks.local:setup",
    )
    shop = Shop.remote()
    print("sold:", ray.get([shop.sell.remote(order) for order in range(5)]))

    logs = Path(cluster.address_info["session_dir"], "logs")
    while not (errors := [line for line in lines(logs) if line["levelname"] == "ERROR"]):
        time.sleep(0.1)
    print("an error:", errors[0]["message"])
    print("its trace: ray-tracing-hooks tree --errors --trace", errors[0]["trace_id"])
    print("all lines of its span:")
    for line in lines(logs):
        if line.get("span_id") == errors[0]["span_id"]:
            print(" ", line["levelname"], line["message"])
