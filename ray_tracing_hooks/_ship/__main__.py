"""``python -m ray_tracing_hooks._ship SPOOL_DIR``: be the shipper of a spool folder that has a plan and no shipper."""

from __future__ import annotations

import contextlib
import gc
import logging
import logging.handlers
import os
import sys

from ray_tracing_hooks._ship.environment import of_delivery
from ray_tracing_hooks._ship.files import LOCK, is_file_at, take_lock
from ray_tracing_hooks._ship.loop import Shipper
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import logger

_USAGE = "usage: python -m ray_tracing_hooks._ship [--lock DESCRIPTOR] SPOOL_DIR"
_LOG_BYTES = 1024 * 1024
_LOG_AGAIN = 600.0
_MOST_KEYS = 1000


def main(arguments: list[str]) -> int:
    """Exit code 0: drained, or another shipper is there. 1: failed, see the log. 2: no spool folder with a plan."""
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
        lock = inherited if is_file_at(inherited, os.path.join(spool_dir, LOCK)) else take_lock(spool_dir)
        if lock is None:
            return 0
        os.set_inheritable(lock, False)
        plan = ShipPlan.load(spool_dir)
    except (OSError, ValueError) as error:
        print(f"{spool_dir!r} is no spool folder to ship: {error}", file=sys.stderr)  # noqa: T201
        return 2
    _log_to(plan.log_file)
    _be_modest()
    # What is read and sent has no cycles, and there is much of it: looking for some at the usual pace costs a tenth.
    gc.set_threshold(50_000, 20, 50)
    try:
        Shipper(spool_dir, plan, lock, of_delivery(os.environ)).run()
    except Exception:  # noqa: BLE001  the log is the only place where it can be told
        logger.exception("the shipper of %s failed", spool_dir)
        return 1
    return 0


def _be_modest() -> None:
    """Never in the way of the program that is traced, and not the first to go when a worker has used up the memory."""
    with contextlib.suppress(OSError):
        os.nice(10)
    # Ray gives its workers 1000, which a shipper that one of them started would inherit.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("0")


def _log_to(path: str | None) -> None:
    logger.setLevel(logging.INFO)
    logging.raiseExceptions = False
    handler: logging.Handler = logging.NullHandler()
    if path is not None:
        with contextlib.suppress(OSError):
            handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    handler.addFilter(_Seldom())
    # At the root, for what installed exporters and the libraries that they send with have to say.
    logging.getLogger().addHandler(handler)


class _Seldom(logging.Filter):
    """Lets what others log pass once in :data:`_LOG_AGAIN` seconds: some exporters log each of their attempts."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == logger.name:
            return True
        key = (record.name, str(record.msg))
        if record.created - self._last.get(key, 0.0) < _LOG_AGAIN:
            return False
        if len(self._last) > _MOST_KEYS:
            self._last.clear()
        self._last[key] = record.created
        return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
