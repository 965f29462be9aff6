"""Delivers what waits in earlier spools of this node, whose settings were wrong and have been corrected.

A change of settings begins another spool. The processes that change write its name into the file ``left`` of the
earlier spool. If the shipper there cannot deliver, the one here stores its own settings of delivery in that plan. The
other shipper then ends, and one with the environment of this process continues from its progress, so that nothing is
lost or sent twice.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping

from ray_tracing_hooks._ship.figures import Figures, read
from ray_tracing_hooks._ship.files import is_shipper_running, successor_of
from ray_tracing_hooks._ship.log import logger
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.start import ensure_running
from ray_tracing_hooks._spool.reader import segments

_EACH = 5.0
"""Seconds between two looks at the other spools."""


def is_reached(spool_dir: str, figures: Figures, exporter: str) -> bool:
    """Whether a change of settings also changes how this exporter delivers what waits in this spool: its processes run,
    or have gone on to another spool. Local files go to the folder that they were meant for.
    """
    return exporter != "local" and (figures.writers > 0 or bool(successor_of(spool_dir)))


class TakeOver:
    """The take-over by the shipper of ``spool_dir``, with its plan and the variables that configure its delivery."""

    def __init__(self, spool_dir: str, plan: ShipPlan, environ: Mapping[str, str]) -> None:
        self._folder, self._name = os.path.split(spool_dir)
        self._of_node = self._name.rpartition("-")[0]  # other nodes may have theirs in the same folder
        self._plan = plan
        self._environ = environ
        self._at = 0.0

    def check(self) -> None:
        """Take over what waits, if it is time to look. Called repeatedly; never raises."""
        if time.monotonic() < self._at:
            return
        self._at = time.monotonic() + _EACH
        with contextlib.suppress(OSError, ValueError):
            for name in os.listdir(self._folder):
                path = os.path.join(self._folder, name)
                if name.startswith(self._of_node) and successor_of(path) == self._name:
                    self._take(path)

    def _take(self, path: str) -> None:
        theirs = ShipPlan.load(path)
        ours = theirs.delivered_as(self._plan)
        if ours is None:
            return
        if theirs != ours:
            figures = read(path)
            if figures is not None and any(each.is_failing and each.waiting for each in figures.destinations):
                logger.info("taking over the spool %s, whose shipper cannot deliver it", path)
                ours.store(path)
        elif segments(path) and not is_shipper_running(path):
            ensure_running(path, ours, self._environ)
