"""The shipper's main thread: looks at the spool, removes what was delivered, answers requests, knows when to end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray_tracing_hooks._formats.signals import LOGS, TRACES, Signal
from ray_tracing_hooks._private import inside, open_fifo, open_folder
from ray_tracing_hooks._ship.aside import Aside
from ray_tracing_hooks._ship.delivery import Delivery
from ray_tracing_hooks._ship.files import LOCK, NEWS, PLAN, WAKE, is_file_at, take_lock, write_atomically
from ray_tracing_hooks._ship.folder import Folder, Look, Segment, is_running
from ray_tracing_hooks._ship.metrics.settings import NOT_TAKEN, are_taken
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems, logger
from ray_tracing_hooks._ship.secrets import Secrets
from ray_tracing_hooks._ship.sift import Sifter
from ray_tracing_hooks._ship.sinks import METRICS_SINK, takes, usable
from ray_tracing_hooks._spool.layout import FORKED, LOG, SPAN
from ray_tracing_hooks._spool.reader import count_spans, is_refused

_RECORDS = {TRACES: SPAN, LOGS: LOG}
"""What is delivered, and the kind of its records in a spool."""

_SOON, _STEADY, _IDLE = 0.05, 0.4, 1.0
"""Seconds between looks: while much flows, while little does, and when nothing has happened for long."""

_MUCH = 256 * 1024
"""So many bytes since the last look are much, and so is a quarter of the room that is left on the disk."""

_IMPATIENT = 0.01
"""Seconds between looks while somebody waits for processes to end."""

_LINGER = 2.0
"""Without a raylet to watch, a shipper outlives the last writer by so many seconds: another may come."""

_GIVE_UP = 60.0
"""Seconds after the end of Ray and of the last writer at which undelivered spans are left in the spool."""

_LAST_TURN = 5.0
"""Seconds that SIGTERM leaves for a last delivery."""

_LAST_METRICS = 5.0
"""Seconds that the last metrics may take to leave when the shipper ends."""

_COUNTING = 0.1
"""Seconds for counting what waits, where a request is answered because its time is over."""

_TO_ANSWER = 0.5
"""Seconds before the end of its time-out at which a request is answered: this process has a low priority."""

_LISTEN = 0.5
"""Seconds that a shipper listens at least: whoever has started it may be about to ask for something."""

_EXITING = 0.3
"""A process that let go of its lock no longer ago may be one that is just being killed."""


@dataclass
class _Request:
    """Somebody waits until everything is delivered. ``look`` is the number of the look that holds everything."""

    answer: str
    deadline: float
    until_writers_end: bool
    pid: int
    look: int | None = None


class Shipper:
    """Drains one spool folder until there is nothing left to come.

    ``folder`` is the open folder, ``lock`` the descriptor that holds its lock, and ``environ`` the variables that say
    how to deliver. What is at the path ``spool_dir`` by now may be something else: it is only told. ``secrets``
    are told to nobody, and ``problem`` is one that is known already.
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
        self._path = spool_dir
        self._descriptor = folder
        self._within = inside(folder)
        self._plan = plan
        self._lock = lock
        self._folder = Folder(self._within)
        self._problems = Problems(secrets.mask)
        self._aside = Aside(self._within, spool_dir, plan.spool_max_bytes // 10, self._problems)
        self._sifter = Sifter(self._within, plan, self._problems, self._aside) if plan.keeps else None
        self._present: dict[str, tuple[str, Segment]] = {}
        self._requests: list[_Request] = []
        self._terminated = self._hurry = False
        self._paused: set[str] = set()
        self._quiet_since: float | None = None
        self._raylet_asked = 0.0
        self._raylet_gone = False
        self._interval = _SOON
        self._size = -1
        self._moved = -1
        self._news = 0
        self._began = time.monotonic()
        self._wake = self._make_fifo()
        exporters, problems = usable(plan.exporters)
        for text in [problem, *problems] if problem else problems:
            self._problems.say(text)
        plan = plan._replace(exporters=exporters)
        self._exporting = [
            Delivery(
                name,
                self._within,
                plan,
                environ,
                self._problems,
                reports=recorded is TRACES and name == exporters[0],
                turn_ended=self._turn_ended,
                signal=recorded,
            )
            for recorded, _ in self._recorded()
            for name in exporters
            if takes(name, recorded)
        ]
        self._counting: Delivery | None = None
        if plan.metrics and are_taken(exporters):
            self._counting = Delivery(
                METRICS_SINK, self._within, plan, environ, self._problems, reports=False, turn_ended=self._turn_ended
            )
        elif plan.metrics:
            self._problems.say(NOT_TAKEN)
        self._deliveries = [*self._exporting, self._counting] if self._counting else self._exporting

    def run(self) -> None:
        """Until Ray and all writers have ended and everything is delivered, or it is time to give up."""
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminate)
        logger.info("shipping the spool %s to %s", self._path, ", ".join(self._plan.exporters) or "nowhere")
        look = Look(0, {})
        while not self._terminated:
            if not self._keep_house():
                logger.warning("another shipper has taken over the spool %s", self._path)
                self._end_deliveries()
                return
            seen = True
            try:
                look = self._look()
            except OSError as error:
                # Of the machine, and it may pass. What is known is delivered meanwhile.
                seen = False
                self._problems.set("look", f"cannot look at the spool {self._path!r}: {error.strerror}")
            else:
                self._problems.clear("look")
            self._offer(look, hurry=self._hurry)
            self._hurry = False
            removed = self._remove_delivered(look)
            self._keep_below_cap(look, removed)
            self._tell_news()
            seen = seen and not self._is_behind
            self._answer(look, seen=seen)
            if seen and self._is_over(self._everything(look)) and not self._is_asked():
                break
            self._wait(self._everything(look), sum(segment.size for segment in removed))
        else:
            self._drain_once()
            self._end_deliveries()
            return
        self._end_deliveries()
        self._clean_up()

    def _keep_house(self) -> bool:
        """Make anew what somebody has removed of the spool folder while Ray runs; False if another shipper is there."""
        lock = os.path.join(self._within, LOCK)
        if is_file_at(self._lock, lock):
            if not is_file_at(self._wake, os.path.join(self._within, WAKE)):
                self._restore_files()
            return True
        if self._is_raylet_gone(time.monotonic()):
            return not os.path.lexists(lock)
        try:
            if self._is_gone():
                folder = open_folder(self._path)
                # In place: all paths of files lead through its number.
                os.dup2(folder, self._descriptor, inheritable=False)
                os.close(folder)
            mine = take_lock(self._within)
        except OSError as error:
            self._problems.set(
                "house", f"the spool folder {self._path!r} is gone, and cannot be made: {error.strerror}"
            )
            return True
        if mine is None:
            return False
        os.close(self._lock)
        self._lock = mine
        self._problems.say(f"somebody has removed the spool folder {self._path!r} or files in it; it was made anew")
        self._restore_files()
        return True

    def _restore_files(self) -> None:
        try:
            os.pwrite(self._lock, b"started", 0)
            self._plan.store(self._within)
            wake = self._make_fifo()
        except OSError as error:
            self._problems.set("house", f"cannot write to the spool folder {self._path!r}: {error.strerror}")
            return
        # In place: threads wake us up by its number.
        os.dup2(wake, self._wake, inheritable=False)
        os.close(wake)
        self._problems.clear("house")
        for delivery in self._deliveries:
            delivery.store_again()

    def _look(self) -> Look:
        if self._sifter is not None:
            # First, so that what is kept is there to be seen.
            writing = [process for process in self._sifter.look.processes.values() if process.alive]
            final = not writing and self._is_raylet_gone(time.monotonic())
            self._sifter.turn(hurry=bool(self._requests) or self._terminated or final, final=final)
            self._paused.update(_paused(self._sifter.look))
        look = self._folder.look(set().union(*(delivery.open_processes for delivery in self._deliveries)))
        self._paused.update(_paused(look))
        self._notice_removals(look)
        return look

    @property
    def _is_behind(self) -> bool:
        return self._sifter is not None and self._sifter.behind

    def _everything(self, look: Look) -> Look:
        """The look, with what is still to be decided on."""
        return look if self._sifter is None else Look(look.number, {**look.processes, **self._sifter.look.processes})

    def _notice_removals(self, look: Look) -> None:
        present = {
            segment.path: (name, segment) for name, process in look.processes.items() for segment in process.segments
        }
        gone = sum(
            segment.size > min((delivery.read_of(name, segment.sequence) for delivery in self._exporting), default=0)
            for path, (name, segment) in self._present.items()
            if path not in present and not os.path.lexists(path)
        )
        text = "{count} files of the spool were removed by somebody else before all of their spans were delivered"
        self._problems.count(text, gone)
        self._present = present

    def _offer(self, look: Look, *, hurry: bool) -> None:
        for delivery in self._deliveries:
            delivery.offer(look, hurry=hurry)

    def _is_delivered(self, look_number: int) -> bool:
        return all(delivery.drained >= look_number for delivery in self._deliveries)

    def _are_metrics_sent(self, look_number: int) -> bool:
        """Whether metrics of all that is in this look have left, or it is known that they cannot."""
        counting = self._counting
        return counting is None or (counting.hurried >= look_number and not counting.is_sending)

    def _remove_delivered(self, look: Look) -> set[Segment]:
        """Remove the segments that every sink has delivered, and say which."""
        removed = set()
        for name, process in look.processes.items():
            below = min((delivery.delivered.get(name, -1) for delivery in self._deliveries), default=1 << 62)
            for segment in process.segments:
                if not segment.complete or segment.sequence >= below:
                    continue
                if not any(delivery.could_not_read(segment.path) for delivery in self._deliveries):
                    self._unlink(segment.path)
                elif not self._aside.keep(segment.path):
                    continue
                self._present.pop(segment.path, None)
                removed.add(segment)
        return removed

    def _keep_below_cap(self, look: Look, removed: set[Segment]) -> None:
        """Remove the oldest complete segments until the others are as small as the plan demands."""
        kept = look.size - sum(segment.size for segment in removed) + self._aside.size
        kept += self._sifter.size if self._sifter is not None else 0
        excess = kept - self._plan.spool_max_bytes
        if excess <= 0:
            return
        complete = [
            (segment.mtime_ns, name, segment)
            for name, process in look.processes.items()
            for segment in process.segments
            if segment.complete and segment not in removed
        ]
        lost = dict.fromkeys(_RECORDS, 0)
        for _, name, segment in sorted(complete):
            if excess <= 0:
                break
            self._present.pop(segment.path, None)
            with contextlib.suppress(OSError):
                if is_refused(segment.path):
                    self._aside.keep(segment.path)
                    continue
            excess -= segment.size
            for recorded, kind in self._recorded():
                lost[recorded] += count_spans(
                    segment.path, self._read_by_all(name, segment, recorded), kind_of_record=kind
                )[0]
            self._unlink(segment.path)
        for recorded, count in lost.items():
            self._problems.count(self._lost_by_cap(recorded), count)

    def _recorded(self) -> list[tuple[Signal, int]]:
        """What processes record of this plan, and the kind of its records."""
        return [pair for pair in _RECORDS.items() if pair[0] is TRACES or self._plan.log_records]

    def _read_by_all(self, name: str, segment: Segment, recorded: Signal) -> int:
        """The offset up to which all that deliver this signal have read a segment."""
        offsets = [each.read_of(name, segment.sequence) for each in self._exporting if each.signal is recorded]
        return min(offsets, default=0)

    def _lost_by_cap(self, recorded: Signal) -> str:
        return (
            f"{{count}} {recorded.items} are lost, since the spool reached its {self._plan.spool_max_bytes} bytes "
            "(RAY_TRACING_SPOOL_MAX_BYTES) before they could be delivered"
        )

    def _tell_news(self) -> None:
        number, news = self._problems.news()
        if number > self._news:
            self._news = number
            # Whoever flushes is told too.
            with contextlib.suppress(OSError):
                write_atomically(os.path.join(self._within, NEWS), json.dumps(news))

    def _unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            name = os.path.basename(path)
            self._problems.set("unlink", f"cannot remove {name!r} from the spool {self._path!r}: {error.strerror}")

    def _answer(self, look: Look, *, seen: bool) -> None:
        for request in list(self._requests):
            everything = self._everything(look)
            ended = not request.until_writers_end or not _is_writing(everything, request.pid)
            if seen and request.look is None and ended:
                request.look = look.number
                # Not only for what was there when somebody asked: what came since must not wait for company either.
                self._hurry = True
            done = (
                request.look is not None and self._is_delivered(request.look) and self._are_metrics_sent(request.look)
            )
            if done or time.monotonic() >= request.deadline:
                self._requests.remove(request)
                self._send(request.answer, [] if done else self._waiting(look), done=done)

    def _waiting(self, look: Look) -> list[str]:
        """How many spans, or log records, wait for whom, as far as they can be counted in a moment."""
        until = time.monotonic() + _COUNTING
        texts = []
        for delivery in self._exporting:
            if delivery.drained >= look.number:
                continue
            spans, complete = 0, True
            for name, process in look.processes.items():
                for segment in process.segments:
                    offset = delivery.read_of(name, segment.sequence)
                    counted, finished = count_spans(segment.path, offset, until, _RECORDS[delivery.signal])
                    spans += counted
                    complete = complete and finished
            if spans:
                number = f"{'' if complete else 'at least '}{spans:,} {_wait(delivery.signal, spans)}"
                text = f"{number} in {self._path} for the exporter {delivery.name!r}; delivery goes on"
                if delivery.signal is TRACES:
                    text += f", and `ray-tracing-hooks replay {self._path}` delivers what is left"
                texts.append(text)
        if self._counting is not None and self._counting.is_sending:
            texts.append("the last metrics have not been taken yet; sending goes on")
        return texts

    def _send(self, fifo: str, waiting: list[str], *, done: bool) -> None:
        # Nobody may be waiting any more. Then the next one who asks is told what is said once.
        with contextlib.suppress(OSError):
            descriptor = open_fifo(os.path.join(self._within, fifo))
            try:
                problems = [problem[:700] for problem in self._problems.tell()]
                answer: dict[str, Any] = {"done": done, "problems": problems, "waiting": waiting}
                while len(line := json.dumps(answer).encode() + b"\n") > select.PIPE_BUF:
                    (problems or waiting).pop()
                os.write(descriptor, line)
            finally:
                os.close(descriptor)

    def _is_over(self, look: Look) -> bool:
        now = time.monotonic()
        if self._is_gone() and self._is_raylet_gone(now):
            logger.warning("the spool folder %s is gone", self._path)
            return True
        if any(process.alive for process in look.processes.values()) or not self._is_raylet_gone(now):
            self._quiet_since = None
            return False
        if self._quiet_since is None:
            self._quiet_since = now
        quiet = now - self._quiet_since
        if not look.processes and self._is_delivered(look.number - 1):
            return not self._requests and (self._plan.raylet_socket is not None or quiet >= _LINGER)
        if quiet < _GIVE_UP:
            return False
        left = sum(len(process.segments) for process in look.processes.values())
        if left:
            logger.warning("gave up after %g s: %d files of undelivered spans stay in %s", quiet, left, self._path)
        return True

    def _is_gone(self) -> bool:
        """Whether the folder has been removed. One that was moved is not: its writers go on in it."""
        return not os.fstat(self._descriptor).st_nlink

    def _is_asked(self) -> bool:
        """Whether somebody has just asked for something, or may do so now that this shipper has begun."""
        if time.monotonic() - self._began < _LISTEN:
            return True
        for line in self._heard():
            self._take_request(line)
        return bool(self._requests)

    def _is_raylet_gone(self, now: float) -> bool:
        if self._plan.raylet_socket is None:
            return True
        if not self._raylet_gone and now - self._raylet_asked >= 1.0:
            self._raylet_asked = now
            self._raylet_gone = _is_deserted(self._plan.raylet_socket)
        return self._raylet_gone

    def _room(self) -> int:
        """How many bytes the disk can still take, as far as it tells."""
        try:
            found = os.fstatvfs(self._descriptor)
        except OSError:
            return 4 * _MUCH
        return found.f_bavail * found.f_frsize

    def _wait(self, look: Look, removed: int) -> None:
        """Until the next look. So many bytes of what was there have been ``removed``."""
        size, moved = look.size, sum(delivery.portions for delivery in self._deliveries)
        came = size - self._size
        if came >= _MUCH or (came > 0 and came >= self._room() // 4):
            self._interval = _SOON
        else:
            is_flowing = size != self._size or moved != self._moved
            self._interval = min(2 * self._interval, _STEADY if is_flowing else _IDLE)
        self._size, self._moved = size - removed, moved
        interval = self._interval
        if self._requests:
            first = min(request.deadline for request in self._requests) - time.monotonic()
            waiting = any(request.look is None for request in self._requests)
            interval = max(0.0, min(interval, first, _IMPATIENT if waiting else _SOON))
        if self._is_behind:
            interval = 0.0
        select.select([self._wake], [], [], interval)
        for line in self._heard():
            self._take_request(line)

    def _heard(self) -> list[bytes]:
        try:
            return [line for line in os.read(self._wake, 1 << 16).split(b"\n") if line]
        except BlockingIOError:
            return []

    def _take_request(self, line: bytes) -> None:
        try:
            found: dict[str, Any] = json.loads(line)
            request = _Request(
                answer=os.path.basename(found["answer"]),
                deadline=_time_to_answer(float(found["timeout"])),
                until_writers_end=bool(found["until_writers_end"]),
                pid=int(found["pid"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            logger.warning("a request makes no sense: %r", error)
            return
        self._requests.append(request)
        self._hurry = True

    def _turn_ended(self) -> None:
        """Called in the threads of the deliveries."""
        if self._requests or self._terminated:
            self._wake_up()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\n")

    def _terminate(self, _number: int, _frame: object) -> None:
        self._terminated = True
        self._wake_up()

    def _drain_once(self) -> None:
        try:
            look = self._look()
        except OSError as error:
            logger.warning("cannot look at the spool %r: %s", self._path, error.strerror)
            return
        self._offer(look, hurry=True)
        deadline = time.monotonic() + _LAST_TURN
        while not (self._is_delivered(look.number) and self._are_metrics_sent(look.number)):
            if (left := deadline - time.monotonic()) <= 0:
                break
            select.select([self._wake], [], [], left)
            self._heard()
        self._remove_delivered(look)
        logger.info("ended by SIGTERM; the next shipper goes on from here")

    def _end_deliveries(self) -> None:
        for delivery in self._deliveries:
            delivery.end(_LAST_METRICS if delivery is self._counting else 1.0)

    def _clean_up(self) -> None:
        """Remove our own files, and the folder if nobody may want to write into it again."""
        # First what others write to, so that nobody asks here any more; then those who have asked are answered.
        self._unlink(os.path.join(self._within, WAKE))
        for line in self._heard():
            self._take_request(line)
        drained = (self._sifter is None or self._sifter.clean_up()) and not self._folder.look(set()).processes
        for request in self._requests:
            self._send(request.answer, [], done=drained)
        with contextlib.suppress(OSError):
            for name in os.listdir(self._within):
                state = name in {PLAN, NEWS} or name.startswith(("progress-", "flush-", ".replay-"))
                if drained and state:
                    os.unlink(os.path.join(self._within, name))
            lock = os.path.join(self._within, LOCK)
            if is_file_at(self._lock, lock):
                os.unlink(lock)
            ours = is_file_at(self._descriptor, self._path)
            if drained and ours and not any(is_running(name) for name in self._paused):
                os.rmdir(self._path)
        logger.info("ended")

    def _make_fifo(self) -> int:
        path = os.path.join(self._within, WAKE)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.mkfifo(path, 0o600)
        # Open for writing too, so that it never comes to its end when a writer closes it.
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)


def _wait(recorded: Signal, count: int) -> str:
    return f"{recorded.items.removesuffix('s')} waits" if count == 1 else f"{recorded.items} wait"


def _time_to_answer(timeout: float) -> float:
    """When to answer a request that waits so many seconds, in those of ``time.monotonic()``."""
    return time.monotonic() + max(0.0, timeout - max(_COUNTING, min(_TO_ANSWER, timeout / 10)))


def _paused(look: Look) -> list[str]:
    """The processes that have let go of their segments and run on."""
    return [name for name, process in look.processes.items() if not process.alive and process.ended_at is None]


def _is_writing(look: Look, asking_pid: int) -> bool:
    """Whether a process other than the one that asks holds a segment, or let go of it a moment ago and still runs.

    One that was forked from Ray's does not count: it may go on for as long as it likes.
    """
    now = time.monotonic()
    return any(
        process.alive or (process.ended_at is None and now - process.let_go < _EXITING)
        for name, process in look.processes.items()
        if name.partition("-")[0] != str(asking_pid) and not name.endswith(FORKED)
    )


def _is_listed(path: str) -> bool:
    """Whether the kernel knows that somebody in our network namespace listens at this path.

    A connection would tell as well, but the raylet logs each one.
    """
    with contextlib.suppress(OSError), open("/proc/net/unix", "rb") as file:
        wanted = os.fsencode(path)
        for line in file:
            # Num RefCount Protocol Flags Type St Inode Path; the flag 0x10000 is that of a listener.
            parts = line.rstrip(b"\n").split(maxsplit=7)
            if parts[-1] == wanted and int(parts[3], 16) & 0x10000:
                return True
    return False


def _is_deserted(path: str) -> bool:
    """Whether nobody listens on this unix socket any more. In doubt somebody does."""
    if _is_listed(path):
        return False
    folder = -1
    try:
        address = path
        if len(os.fsencode(path)) > 107:
            # More than an address can hold: go by way of a descriptor of its folder.
            folder = os.open(os.path.dirname(path), os.O_PATH | os.O_CLOEXEC)
            address = f"/proc/self/fd/{folder}/{os.path.basename(path)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            connection.connect(address)
    except OSError as error:
        return error.errno in {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR}
    finally:
        if folder >= 0:
            os.close(folder)
    return False
