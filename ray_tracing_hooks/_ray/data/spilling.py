"""How much the cluster spilled to disk during an execution.

Ray's own function asks a raylet for the totals of all nodes (Ray 2.60 ``_private/internal_api.py``, as
``Dataset.materialize()`` does), which takes milliseconds. So a thread asks during the execution, and the result is the
difference between the last and the first answer.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._exceptions import is_interruption

_FIRST = 1.0
"""Seconds before the first question: a shorter execution asks none."""

_INTERVAL = 10.0

_LAST_WAIT = 0.1
"""Seconds that the end of an execution waits for the last answer, at most."""

_TIMEOUT = 5.0


class Spilled(NamedTuple):
    """Bytes that the cluster has spilled and restored since it was started."""

    spilled: int
    restored: int


class Watch:
    """Watches the cluster at this address of its GCS during one execution."""

    def __init__(self, gcs_address: str) -> None:
        self._gcs_address = gcs_address
        self._ending = threading.Event()
        self._done = threading.Event()
        self._first: Spilled | None = None
        self._last: Spilled | None = None
        self._began = monotonic()
        threading.Thread(target=self._run, name="ray_tracing_hooks-spilling", daemon=True).start()

    def end(self) -> dict[str, int]:
        """Stop; returns what was spilled meanwhile as attributes of the execution, as far as it is known."""
        self._ending.set()
        if monotonic() - self._began > _FIRST:
            self._done.wait(_LAST_WAIT)
        first, last = self._first, self._last
        if first is None or last is None:
            return {}
        found = {
            names.RAY_DATA_SPILLED: last.spilled - first.spilled,
            names.RAY_DATA_RESTORED: last.restored - first.restored,
        }
        return {key: size for key, size in found.items() if size > 0}

    def _run(self) -> None:
        try:
            if not self._ending.wait(_FIRST):
                self._first = self._last = self._ask()
                while not self._ending.wait(_INTERVAL):
                    self._last = self._ask()
                self._last = self._ask()
        except Exception as error:  # what is unknown is left out: the raylet may be gone, or gRPC not installed
            if is_interruption(error):
                raise
        finally:
            self._done.set()

    def _ask(self) -> Spilled:
        from ray._private.internal_api import get_memory_info_reply, get_state_from_address  # noqa: PLC0415  imports gRPC

        totals = get_memory_info_reply(get_state_from_address(self._gcs_address), timeout_seconds=_TIMEOUT).store_stats
        return Spilled(int(totals.spilled_bytes_total), int(totals.restored_bytes_total))
