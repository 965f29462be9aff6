"""``python -m ray_tracing_hooks._ship SPOOL_DIR``: run the shipper of a spool folder."""

from __future__ import annotations

import contextlib
import gc
import os
import sys

from ray_tracing_hooks._safety.private import inside, open_folder
from ray_tracing_hooks._ship.files import LOCK, is_file_at, take_lock
from ray_tracing_hooks._ship.log import Secrets, log_to, logger
from ray_tracing_hooks._ship.plan import ShipPlan, of_delivery
from ray_tracing_hooks._ship.shipper import Shipper

_USAGE = "usage: python -m ray_tracing_hooks._ship [--lock DESCRIPTOR] SPOOL_DIR"


def main(arguments: list[str]) -> int:
    """Exit code 0: drained, or another shipper is running. 1: failed, see the log. 2: no spool folder with a plan."""
    inherited = -1
    if len(arguments) == 3 and arguments[0] == "--lock" and arguments[1].isdigit():
        inherited = int(arguments[1])
        arguments = arguments[2:]
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(_USAGE, file=sys.stderr)  # noqa: T201
        return 2
    spool_dir = os.path.abspath(arguments[0])
    os.umask(0o077)
    try:
        folder = open_folder(spool_dir, make=False)
        within = inside(folder)
        lock = inherited if is_file_at(inherited, os.path.join(within, LOCK)) else take_lock(within)
        if lock is None:
            return 0
        os.set_inheritable(lock, False)
        plan = ShipPlan.load(within)
    except (OSError, ValueError) as error:
        print(f"{spool_dir!r} cannot be shipped: {error}", file=sys.stderr)  # noqa: T201
        return 2
    environ = of_delivery(os.environ)
    secrets = Secrets(os.environ)
    problem = log_to(plan.log_file, secrets, plan.settings.group)
    _lower_priority()
    # Spans are many objects without reference cycles: collecting at the default thresholds costs a tenth of the time.
    gc.set_threshold(50_000, 20, 50)
    try:
        Shipper(spool_dir, folder, plan, lock, environ, secrets=secrets, problem=problem).run()
    except Exception:  # noqa: BLE001  the log is the only place to report it
        logger.exception("the shipper of %s failed", spool_dir)
        return 1
    return 0


def _lower_priority() -> None:
    """Yield the processor to the traced program, and do not be the OOM killer's first choice."""
    with contextlib.suppress(OSError):
        os.nice(10)
    # Ray sets it to 1000 for its workers, and a shipper that a worker starts would inherit that.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("0")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
