"""What stays in a spool folder and for how long: delivered segments go, and the cap on the rest is kept."""

from __future__ import annotations

import contextlib
import os
import time

from ray_tracing_hooks._formats.signals import Signal
from ray_tracing_hooks._ship.blank import UNABLE, blank
from ray_tracing_hooks._ship.deliveries import Deliveries
from ray_tracing_hooks._ship.folder import Look, Segment
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems, logger
from ray_tracing_hooks._ship.quarantine import Quarantine
from ray_tracing_hooks._spool.reader import is_refused

_HELD_SHARE = 8
"""What is delivered may take this part of the spool's cap, beside it, in segments that are still written to."""

_BLANKING = 0.2
"""Seconds that one turn may take to give disk back."""


class Retention:
    """Removes what ``deliveries`` have delivered, and the oldest of the rest where it exceeds the cap of the plan.

    ``quarantine`` takes the segments that could not be read. ``spool_dir`` is only for messages.
    """

    def __init__(
        self, spool_dir: str, plan: ShipPlan, deliveries: Deliveries, quarantine: Quarantine, problems: Problems
    ) -> None:
        self._path = spool_dir
        self._cap = plan.spool_max_bytes
        self._deliveries = deliveries
        self._quarantine = quarantine
        self._problems = problems
        self._present: dict[str, tuple[str, Segment]] = {}
        self._blanked: dict[str, int] = {}  # up to where the disk of each segment that is written to was given back
        self._makes_holes = True

    def notice_removals(self, look: Look) -> None:
        """Count the segments that somebody else has removed since the last look."""
        present = {
            segment.path: (name, segment) for name, process in look.processes.items() for segment in process.segments
        }
        gone = sum(
            segment.size > self._deliveries.exported_of(name, segment)
            for path, (name, segment) in self._present.items()
            if path not in present and not os.path.lexists(path)
        )
        text = "{count} files of the spool were removed by somebody else before all of their spans were delivered"
        self._problems.count(text, gone)
        self._present = present

    def remove_delivered(self, look: Look) -> set[Segment]:
        """Remove the segments that are delivered, and say which."""
        removed = set()
        for name, process in look.processes.items():
            below = self._deliveries.delivered_below(name)
            for segment in process.segments:
                if not segment.complete or segment.sequence >= below:
                    continue
                if not self._deliveries.could_not_read(segment.path):
                    self._unlink(segment.path)
                elif not self._quarantine.keep(segment.path):
                    continue
                self._present.pop(segment.path, None)
                removed.add(segment)
        return removed

    def give_back(self, look: Look) -> None:
        """Give back the disk of what is delivered of segments that are still written to, if it is much together."""
        held = {
            segment.path: (size - self._blanked.get(segment.path, 0), size)
            for name, process in look.processes.items()
            for segment in process.segments
            if not segment.complete and (size := min(segment.size, self._deliveries.read_of(name, segment)))
        }
        self._blanked = {path: size for path, size in self._blanked.items() if path in held}
        excess = sum(size for size, _ in held.values()) - self._cap // _HELD_SHARE
        if excess <= 0 or not self._makes_holes:
            return
        until = time.monotonic() + _BLANKING
        for path, (size, end) in sorted(held.items(), key=lambda item: -item[1][0]):
            if excess <= 0 or time.monotonic() > until:
                break
            try:
                blank(path, end)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno in UNABLE:
                    # What segments hold there is bounded by their size, which their processes choose accordingly.
                    self._makes_holes = False
                    logger.info("the file system of the spool %s makes no holes: %s", self._path, error.strerror)
                    return
                logger.warning("cannot make holes in %r: %s", os.path.basename(path), error.strerror)
            self._blanked[path] = end
            excess -= size

    def keep_below_cap(self, look: Look, removed: set[Segment], beside: int) -> None:
        """Remove the oldest complete segments until the undelivered rest is as small as the plan demands.

        The segments ``removed`` of this look are gone already, and so many bytes ``beside`` them count too.
        """
        waiting = {
            segment: (name, max(0, segment.size - self._deliveries.read_of(name, segment)))
            for name, process in look.processes.items()
            for segment in process.segments
            if segment not in removed
        }
        excess = sum(size for _, size in waiting.values()) + self._quarantine.size + beside - self._cap
        if excess <= 0:
            return
        lost = dict.fromkeys(self._deliveries.signals, 0)
        for segment, (name, size) in sorted(waiting.items(), key=lambda item: (item[0].mtime_ns, item[1])):
            if excess <= 0:
                break
            if not segment.complete or not size:
                continue
            self._present.pop(segment.path, None)
            with contextlib.suppress(OSError):
                if is_refused(segment.path):
                    self._quarantine.keep(segment.path)
                    continue
            excess -= size
            with self._deliveries.paused():
                for signal in lost:
                    lost[signal] += self._deliveries.not_taken(name, segment, signal)
                self._unlink(segment.path)
        for signal, count in lost.items():
            self._problems.count(self._lost(signal), count)

    def _lost(self, signal: Signal) -> str:
        return (
            f"{{count}} {signal.items} are lost, since the spool reached its {self._cap} bytes "
            "(RAY_TRACING_SPOOL_MAX_BYTES) before they could be delivered"
        )

    def _unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            name = os.path.basename(path)
            self._problems.set("unlink", f"cannot remove {name!r} from the spool {self._path!r}: {error.strerror}")
