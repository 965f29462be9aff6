"""From an error line in Ray's logs to the trace that it belongs to, and from a span to all lines that it logged.

Run it:

    python examples/logs_to_trace.py

A task fails, deep inside a program, and logs an error. Ray writes its logs as JSON here, and each line has the ids of
its trace and span. The program then searches for error lines, as you would with ``jq`` or a log viewer, shows the trace
of the first one, and all lines that the failed span has logged. On Kubernetes, a sidecar ships lines and spans to one
store, which does the same for a whole cluster: docs/guides/kubernetes.md.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ray

logger = logging.getLogger("orders")


@ray.remote(num_cpus=0)
def charge(order: int) -> int:
    logger.info("charging order %d", order)
    if order == 3:
        logger.error("the card of order %d was refused", order)
        raise ValueError("card refused")
    return order


@ray.remote(num_cpus=0)
class Shop:
    def sell(self, order: int) -> bool:
        try:
            ray.get(charge.remote(order))
        except ValueError:
            return False
        return True


def log_lines(logs: Path, key: str, value: str) -> list[dict[str, Any]]:
    """Lines of workers with this value of ``key``, as soon as one exists: ``jq 'select(.levelname == "ERROR")'``."""
    found: list[dict[str, Any]] = []
    for _ in range(100):
        texts = [text for path in logs.glob("worker-*.err") for text in path.read_text().splitlines()]
        lines = [json.loads(text) for text in texts if text.startswith("{") and text.endswith("}")]
        found = [line for line in lines if line.get(key) == value]
        if found:
            break
        time.sleep(0.1)
    return found


def main() -> None:
    context = ray.init(
        "local",  # a cluster of its own, whatever else runs on this machine
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_config=ray.LoggingConfig(encoding="JSON"),
        _tracing_startup_hook="ray_tracing_hooks.local:setup",
    )
    shop = Shop.remote()
    sold = ray.get([shop.sell.remote(order) for order in range(5)])
    print("sold:", sold)
    logs = Path(context.address_info["session_dir"]) / "logs"
    line = next(iter(log_lines(logs, "levelname", "ERROR")))
    ray.shutdown()  # from here on all spans are in the files

    print("an error line:", json.dumps({key: line[key] for key in ("levelname", "message", "trace_id", "span_id")}))
    command = ["tree", "--errors", "--trace", line["trace_id"]]
    print("its trace: ray-tracing-hooks", *command, flush=True)
    subprocess.run([sys.executable, "-m", "ray_tracing_hooks", *command], check=True)  # noqa: S603

    print(f"and back, the lines of span {line['span_id']}:")
    for each in log_lines(logs, "span_id", line["span_id"]):
        print(f"  {each['asctime']} {each['levelname']} {each['message']}")


if __name__ == "__main__":
    main()
