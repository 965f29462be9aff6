"""The shipper's main thread, which watches the spool, starts deliveries, answers requests, and decides when to end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping

from ray_tracing_hooks._safety.private import final_name, inside, open_folder
from ray_tracing_hooks._ship.figures import Figures, read
from ray_tracing_hooks._ship.files import (
    LOCK,
    PLAN,
    REPLAY_PREFIX,
    RETIRED,
    STATUS,
    is_file_at,
    is_shipper_running,
    successor_of,
    take_lock,
)
from ray_tracing_hooks._ship.flush_requests import FlushRequests, Inbox
from ray_tracing_hooks._ship.folder import Folder, FolderSnapshot, Raylet, is_running, remove_abandoned
from ray_tracing_hooks._ship.log import Problems, Secrets, logger
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.retention import Retention
from ray_tracing_hooks._ship.stage import StageContext
from ray_tracing_hooks._ship.stages import Stages
from ray_tracing_hooks._ship.start import ensure_running
from ray_tracing_hooks._ship.status import StatusFile
from ray_tracing_hooks._spool.progress import is_progress_file
from ray_tracing_hooks._spool.reader import segments

_FOLDER_PROBLEM = "folder"


class Claim:
    """The spool folder, given by its open descriptor ``folder`` and the descriptor ``lock`` that holds its lock.

    ``spool_dir`` is only for messages, since another folder may be at that path by now.

    Attributes:
        within: A path that always leads to the open folder.
        is_restored: Whether removed files have been created again since this was last set to False.
    """

    def __init__(
        self, spool_dir: str, folder: int, lock: int, plan: ShipPlan, inbox: Inbox, problems: Problems
    ) -> None:
        self.within = inside(folder)
        self.is_restored = False
        self._path = spool_dir
        self._folder = folder
        self._lock = lock
        self._plan = plan
        self._inbox = inbox
        self._problems = problems

    def verify(self, *, recreate: bool) -> bool:
        """Create removed files again, if ``recreate``; False if another shipper holds the folder now."""
        lock = os.path.join(self.within, LOCK)
        if is_file_at(self._lock, lock):
            if not self._inbox.is_in_place():
                self._restore_files()
            return True
        if not recreate:
            return not os.path.lexists(lock)
        try:
            if self.is_folder_gone():
                folder = open_folder(self._path)
                # In place, since all paths of files lead through this descriptor.
                os.dup2(folder, self._folder, inheritable=False)
                os.close(folder)
            mine = take_lock(self.within)
        except OSError as error:
            self._problems.set(
                _FOLDER_PROBLEM,
                f"the spool folder {self._path!r} is gone, and cannot be created again: {error.strerror}",
            )
            return True
        if mine is None:
            # That is so too where this shipper holds it, and only looking at the file failed.
            return is_file_at(self._lock, lock)
        os.close(self._lock)
        self._lock = mine
        self._problems.warn_once(
            f"the spool folder {self._path!r} or files in it were removed; they have been created again"
        )
        self._restore_files()
        return True

    def is_folder_gone(self) -> bool:
        """Whether the folder has been removed. A moved folder has not: its writers continue in it."""
        return not os.fstat(self._folder).st_nlink

    def is_folder_in_place(self) -> bool:
        """Whether the path still names this folder."""
        return is_file_at(self._folder, self._path)

    def free_bytes(self, otherwise: int) -> int:
        """Free bytes on the disk; ``otherwise`` if unknown."""
        try:
            found = os.fstatvfs(self._folder)
        except OSError:
            return otherwise
        return found.f_bavail * found.f_frsize

    def release(self) -> None:
        """Remove the lock. Raises OSError."""
        lock = os.path.join(self.within, LOCK)
        if is_file_at(self._lock, lock):
            os.unlink(lock)

    def _restore_files(self) -> None:
        try:
            os.pwrite(self._lock, b"started", 0)
            self._plan.store(self.within)
            self._inbox.restore()
        except OSError as error:
            self._problems.set(_FOLDER_PROBLEM, f"cannot write to the spool folder {self._path!r}: {error.strerror}")
            return
        self._problems.clear(_FOLDER_PROBLEM)
        self.is_restored = True


_SOON, _STEADY, _IDLE = 0.05, 0.4, 1.0
"""Seconds between snapshots: with much traffic, with little, and when idle."""

_MUCH = 256 * 1024
"""This many bytes since the last snapshot are much traffic, and so is a quarter of the free disk space."""

_IMPATIENT = 0.01
"""Seconds between snapshots while a request waits for processes to end."""

_LINGER = 2.0
"""Without a raylet to watch, a shipper outlives the last writer by this many seconds, since another may start."""

_GIVE_UP = 60.0
"""Seconds after the end of Ray and of the last writer at which undelivered spans are left in the spool."""

_LAST_TURN = 5.0
"""Seconds for a last delivery after SIGTERM."""

_LISTEN = 0.5
"""Seconds that a shipper listens at least: the process that started it may be about to send a request."""


class Shipper:
    """Drains one spool folder until no more spans can come.

    ``folder`` is the open folder, ``lock`` the descriptor that holds its lock, and ``environ`` the variables that
    configure delivery. ``spool_dir`` is only for messages, since another folder may be at that path by now. ``secrets``
    are masked in all messages, and ``problem`` is one that is already known.
    """

    def __init__(
        self,
        spool_dir: str,
        folder: int,
        plan: ShipPlan,
        lock: int,
        environ: Mapping[str, str],
        *,
        secrets: Secrets,
        problem: str | None = None,
    ) -> None:
        within = inside(folder)
        self._path = spool_dir
        self._within = within
        self._plan = plan
        self._began = time.monotonic()
        self._is_terminated = False
        self._paused: set[str] = set()  # the processes that have closed their segments but are running
        self._quiet_since: float | None = None
        self._blind_since: float | None = None
        self._problems = problems = Problems(secrets.mask)
        self._folder = Folder(within)
        self._raylet = Raylet(plan.raylet_socket)
        self._inbox = Inbox(folder)
        self._claim = Claim(spool_dir, folder, lock, plan, self._inbox, problems)
        if problem is not None:
            problems.warn_once(problem)
        self._stages = Stages(StageContext(within, plan, environ, problems, self._turn_ended), self._figures)
        self._retention = Retention(within, spool_dir, plan, self._stages, problems)
        self._requests = FlushRequests(spool_dir, self._inbox, self._stages, problems)
        self._status = StatusFile(within, plan, environ, self._stages, problems)
        self._pace = _Pace(self._claim)
        self._plan_stored = 0
        self._take_over = TakeOver(spool_dir, plan, environ)
        self._stages.start()

    def run(self) -> None:
        """Run until Ray and all writers have ended and everything is delivered, or it is time to give up."""
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminate)
        # The thread that has started this process may block signals, and passes that on.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        logger.info("shipping the spool %s to %s", self._path, ", ".join(self._plan.exporters) or "nowhere")
        snapshot = FolderSnapshot(0, {})
        while not self._is_terminated:
            if self._has_other_plan():
                logger.info("the plan of the spool %s has changed; another shipper continues with it", self._path)
                self._end()
                return
            self._take_over.check()
            if not self._claim.verify(recreate=not self._raylet.is_gone()):
                logger.warning("another shipper has taken over the spool %s", self._path)
                self._end()
                return
            if self._claim.is_restored:
                self._claim.is_restored = False
                self._stages.store_again()
            seen = True
            try:
                snapshot = self._snapshot()
            except OSError as error:
                # A problem of the machine, which may pass. What is known is delivered meanwhile.
                seen = False
                if self._cannot_see_writers():
                    logger.warning("gave up: %s cannot be read since Ray has ended: %s", self._path, error.strerror)
                    self._end()
                    return
                self._problems.set("look", f"cannot look at the spool {self._path!r}: {error.strerror}")
            else:
                self._problems.clear("look")
                self._blind_since = None
            flush, self._requests.flush = self._requests.flush, False
            self._stages.submit(snapshot, flush=flush)
            removed = self._retention.remove_delivered(snapshot)
            self._retention.keep_below_cap(snapshot, removed)
            self._status.publish(snapshot)
            self._stages.begin_metrics()
            self._requests.answer(snapshot, seen=seen)
            if seen and self._is_over(snapshot) and not self._has_flush_request():
                break
            self._wait(snapshot, sum(segment.size for segment in removed))
        else:
            self._drain_once()
            self._end()
            return
        self._end()
        self._clean_up()

    # One snapshot.

    def _snapshot(self) -> FolderSnapshot:
        snapshot = self._folder.snapshot(self._stages.open_processes)
        self._paused.update(_paused(snapshot))
        self._retention.notice_removals(snapshot)
        return snapshot

    def _wait(self, snapshot: FolderSnapshot, removed: int) -> None:
        """Wait for the next snapshot. ``removed`` is the number of bytes removed since this one."""
        interval = self._pace.interval(snapshot.size, removed, self._stages.portions)
        if self._requests:
            soon = _IMPATIENT if self._requests.are_for_writers else _SOON
            interval = max(0.0, min(interval, self._requests.deadline - time.monotonic(), soon))
        self._inbox.wait(interval)
        self._requests.take()

    def _turn_ended(self) -> None:
        """Wake up the main thread; called in the threads of the stages."""
        if self._requests or self._is_terminated:
            self._inbox.wake_up()

    # The end.

    def _has_other_plan(self) -> bool:
        """Whether the settings of this spool have changed: see :class:`TakeOver`."""
        path = os.path.join(self._within, PLAN)
        try:
            stored = os.stat(path).st_mtime_ns
            if stored == self._plan_stored:
                return False
            self._plan_stored = stored
            return ShipPlan.load(self._within) != self._plan
        except (OSError, ValueError):
            return False

    def _is_over(self, snapshot: FolderSnapshot) -> bool:
        now = time.monotonic()
        is_gone = self._raylet.is_gone()
        is_left = not is_gone and os.path.lexists(os.path.join(self._within, RETIRED))
        if is_gone and self._claim.is_folder_gone():
            logger.warning("the spool folder %s is gone", self._path)
            return True
        if any(process.alive for process in snapshot.processes.values()) or not (is_gone or is_left):
            self._quiet_since = None
            return False
        if self._quiet_since is None:
            self._quiet_since = now
        quiet = now - self._quiet_since
        if not snapshot.processes and self._stages.are_drained(snapshot.number - 1):
            return not self._requests and ((is_gone and self._raylet.is_expected) or quiet >= _LINGER)
        if quiet < _GIVE_UP or is_left:
            return False
        left = sum(len(process.segments) for process in snapshot.processes.values())
        if left:
            logger.warning("gave up after %g s: %d files of undelivered spans stay in %s", quiet, left, self._path)
        return True

    def _cannot_see_writers(self) -> bool:
        """Whether the spool could not be read since Ray has ended, and for as long as a shipper waits then."""
        if not self._raylet.is_gone():
            self._blind_since = None
            return False
        if self._blind_since is None:
            self._blind_since = time.monotonic()
        return time.monotonic() - self._blind_since >= _GIVE_UP

    def _figures(self) -> Figures:
        """The latest figures; called in the threads of the stages."""
        return self._status.latest()

    def _end(self) -> None:
        # First, since nothing is read from here on: who asks now, and who gets no answer, waits for the next shipper.
        self._inbox.remove()
        self._stages.end()

    def _has_flush_request(self) -> bool:
        """Whether a request has just arrived, or may arrive because this shipper has just started."""
        if time.monotonic() - self._began < _LISTEN:
            return True
        self._requests.take()
        return bool(self._requests)

    def _terminate(self, _number: int, _frame: object) -> None:
        self._is_terminated = True
        self._inbox.wake_up()

    def _drain_once(self) -> None:
        try:
            snapshot = self._snapshot()
        except OSError as error:
            logger.warning("cannot look at the spool %r: %s", self._path, error.strerror)
            return
        self._stages.submit(snapshot, flush=True)
        deadline = time.monotonic() + _LAST_TURN
        while not self._stages.is_done(snapshot.number):
            if (left := deadline - time.monotonic()) <= 0:
                break
            self._inbox.wait(left)
            self._requests.take()
        self._retention.remove_delivered(snapshot)
        logger.info("ended by SIGTERM; the next shipper continues from here")

    def _clean_up(self) -> None:
        """Remove our own files, and the folder unless a process may still write into it."""
        self._requests.take()
        remove_abandoned(self._within)
        drained = not self._folder.snapshot(set()).processes
        if drained:
            self._requests.answer_all()
        with contextlib.suppress(OSError):
            for name in os.listdir(self._within):
                if drained and _is_ours(name):
                    os.unlink(os.path.join(self._within, name))
            self._claim.release()
            ours = self._claim.is_folder_in_place()
            if drained and ours and not any(is_running(name) for name in self._paused):
                os.rmdir(self._path)
        logger.info("ended")


class _Pace:
    """Chooses the time between two snapshots."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._interval = _SOON
        self._size = self._portions = -1

    def interval(self, size: int, removed: int, portions: int) -> float:
        """Seconds to wait after a snapshot of ``size`` bytes, given those ``removed`` and the ``portions`` so far."""
        came = size - self._size
        if came >= _MUCH or (came > 0 and came >= self._claim.free_bytes(otherwise=4 * _MUCH) // 4):
            self._interval = _SOON
        else:
            is_flowing = size != self._size or portions != self._portions
            self._interval = min(2 * self._interval, _STEADY if is_flowing else _IDLE)
        self._size, self._portions = size - removed, portions
        return self._interval


def _is_ours(name: str) -> bool:
    """Whether this file of a spool folder is needed only as long as there is a shipper, or something to deliver.

    So is a temporary file that a killed process left, since only the holder of the shipper's lock writes these files.
    """
    name = final_name(name)
    return name in {PLAN, STATUS, RETIRED} or is_progress_file(name) or name.startswith(REPLAY_PREFIX)


def _paused(snapshot: FolderSnapshot) -> list[str]:
    """The processes that have closed their segments but are still running."""
    return [name for name, process in snapshot.processes.items() if not process.alive and process.ended_at is None]


_LOOK_AT_OTHERS = 5.0
"""Seconds between two looks at the other spools."""


class TakeOver:
    """Delivers what waits in earlier spools of this node, whose settings were wrong and have been corrected.

    A change of settings begins another spool. The processes that change write its name into the file ``left`` of the
    earlier spool. If the shipper there cannot deliver, the one of ``spool_dir`` stores its own settings of delivery in
    that plan. The other shipper then ends, and one with ``environ`` continues from its progress, so that nothing is
    lost or sent twice.
    """

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
        self._at = time.monotonic() + _LOOK_AT_OTHERS
        with contextlib.suppress(OSError, ValueError):
            for name in os.listdir(self._folder):
                path = os.path.join(self._folder, name)
                if name.startswith(self._of_node) and successor_of(path) == self._name:
                    self._take(path)

    def _take(self, path: str) -> None:
        theirs = ShipPlan.load(path)
        if theirs.exporters != self._plan.exporters:
            return
        # With the addresses and credentials of this one.
        ours = theirs._replace(environment=self._plan.environment)
        if theirs != ours:
            figures = read(path)
            if figures is not None and any(each.is_failing and each.waiting for each in figures.destinations):
                logger.info("taking over the spool %s, whose shipper cannot deliver it", path)
                ours.store(path)
        elif segments(path) and not is_shipper_running(path):
            ensure_running(path, ours, self._environ)
