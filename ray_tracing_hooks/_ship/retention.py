"""Retention in a spool folder: removes delivered segments, and enforces the cap on the rest."""

from __future__ import annotations

import contextlib
import os

from ray_tracing_hooks._formats.otlp import Signal
from ray_tracing_hooks._ship.folder import FolderSnapshot, Segment, is_gone
from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.stages import Stages
from ray_tracing_hooks._spool.layout import QUARANTINE
from ray_tracing_hooks._spool.reader import is_refused


class Retention:
    """Removes what ``stages`` have delivered, and the oldest of the rest if it exceeds the cap of the plan.

    ``spool_dir`` is the path of the spool for messages, and ``within`` the one by which it is reached.
    """

    def __init__(self, within: str, spool_dir: str, plan: ShipPlan, stages: Stages, problems: Problems) -> None:
        self._path = spool_dir
        self._quarantine = os.path.join(within, QUARANTINE)
        self._cap = plan.settings.spool_max_bytes
        self._stages = stages
        self._problems = problems
        self._present: dict[str, tuple[str, Segment]] = {}

    def notice_removals(self, snapshot: FolderSnapshot) -> None:
        """Count the segments that another process has removed since the last snapshot."""
        present = {
            segment.path: (name, segment)
            for name, process in snapshot.processes.items()
            for segment in process.segments
        }
        gone = sum(
            segment.size > self._stages.exported_of(name, segment)
            for path, (name, segment) in self._present.items()
            if path not in present and is_gone(path)
        )
        text = "{count} files of the spool were removed by another process before all of their spans were delivered"
        self._problems.count(text, gone)
        self._present = present

    def remove_delivered(self, snapshot: FolderSnapshot) -> set[Segment]:
        """Remove the delivered segments, and return them."""
        removed = set()
        for name, process in snapshot.processes.items():
            below = self._stages.delivered_below(name)
            for segment in process.segments:
                if not segment.complete or segment.sequence >= below:
                    continue
                if not self._stages.could_not_read(segment.path):
                    self._unlink(segment.path)
                elif not self._set_aside(segment.path):
                    continue
                self._present.pop(segment.path, None)
                removed.add(segment)
        return removed

    def keep_below_cap(self, snapshot: FolderSnapshot, removed: set[Segment]) -> None:
        """Remove the oldest complete segments until the undelivered rest is below the cap.

        The segments ``removed`` of this snapshot are already gone.
        """
        waiting = {
            segment: (name, max(0, segment.size - self._stages.read_of(name, segment)))
            for name, process in snapshot.processes.items()
            for segment in process.segments
            if segment not in removed
        }
        excess = sum(size for _, size in waiting.values()) - self._cap
        if excess <= 0:
            return
        lost = dict.fromkeys(self._stages.signals, 0)
        for segment, (name, size) in sorted(waiting.items(), key=_age):
            if excess <= 0:
                break
            if not segment.complete or not size:
                continue
            self._present.pop(segment.path, None)
            with contextlib.suppress(OSError):
                if is_refused(segment.path):
                    if self._set_aside(segment.path):
                        excess -= size
                    continue
            excess -= size
            for signal in lost:
                lost[signal] += self._stages.given_up(name, segment, signal)
            self._unlink(segment.path)
        for signal, count in lost.items():
            self._problems.count(self._lost(signal), count)

    def _lost(self, signal: Signal) -> str:
        return (
            f"{{count}} {signal.items} are lost, since the spool reached its limit of {self._cap} bytes "
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

    def _set_aside(self, path: str) -> bool:
        """Move a segment that could not be read to the quarantine; False if that is not possible now."""
        shown = os.path.join(self._path, QUARANTINE)
        try:
            os.makedirs(self._quarantine, mode=0o700, exist_ok=True)
            os.rename(path, os.path.join(self._quarantine, os.path.basename(path)))
        except FileNotFoundError:
            return is_gone(path)
        except OSError as error:
            self._problems.set("aside", f"cannot move {os.path.basename(path)!r} to {shown!r}: {error.strerror}")
            return False
        self._problems.clear("aside")
        self._problems.count(f"{{count}} files of the spool could not be read and are kept in {shown}", 1)
        return True


def _age(item: tuple[Segment, tuple[str, int]]) -> tuple[int, str, int]:
    """Orders segments from the oldest."""
    segment, (name, _) = item
    return segment.mtime_ns, name, segment.sequence
