"""Replays spans from OTLP-JSON files or a leftover spool: one folder to one exporter, resumable.

Progress is stored after each portion, so a killed replay sends at most one portion twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ray_tracing_hooks._formats.encoded_span.read import own_ids
from ray_tracing_hooks._formats.otlp import Group
from ray_tracing_hooks._formats.otlp_json_read import MAX_LINE, traces, unpacked, whole
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._safety.guard import SettingError, TracingError
from ray_tracing_hooks._safety.private import read_file, write_atomically
from ray_tracing_hooks._ship.figures import read
from ray_tracing_hooks._ship.files import LOCK, REPLAY_PREFIX, STATUS, take_lock
from ray_tracing_hooks._ship.folder import Folder, FolderSnapshot
from ray_tracing_hooks._ship.follow import Follower
from ray_tracing_hooks._ship.log import Problems, logger
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.registry import destination_of, make_sink
from ray_tracing_hooks._ship.sink import (
    Backoff,
    Batch,
    DeliveryError,
    RefusesAllError,
    Sink,
    SinkContext,
    reason,
    retry_after,
)
from ray_tracing_hooks._spool.layout import MAX_SEGMENT, SUFFIX
from ray_tracing_hooks._spool.progress import file_name, is_progress_file

T = TypeVar("T")

# The command prints problems. Without a handler, Python's default one would print them too.
logger.addHandler(logging.NullHandler())

_SHOWN = 5
"""How many damaged lines are reported individually."""


class SelectedSpans(NamedTuple):
    """The spans that a replay sends.

    Attributes:
        text: What selects them: the progress of replays of another selection is another one.
        ids: The trace id and the id of each, together.
    """

    text: str
    ids: Collection[bytes]

    def of(self, batches: Sequence[Batch]) -> list[Batch]:
        """The batches with these spans alone."""
        kept = (batch._replace(spans=[each for each in batch.spans if own_ids(each) in self.ids]) for batch in batches)
        return [batch for batch in kept if batch.spans]


class Replay:
    """Sends the spans of one folder to the exporter of the plan.

    ``paths`` are the files of the folder. All problems but those of :meth:`run` are counted by ``problems``. With
    ``again``, it starts from the beginning. ``only`` is what to send, if not all.

    Attributes:
        sent: How many spans were sent by this replay, including lost ones.
        lost: How many of them were refused, or could not be decoded.
    """

    def __init__(
        self,
        folder: str,
        paths: Sequence[str],
        plan: ShipPlan,
        environ: Mapping[str, str],
        problems: Problems,
        *,
        again: bool = False,
        only: SelectedSpans | None = None,
    ) -> None:
        (self._exporter,) = plan.exporters
        self._plan = plan
        self._only = only
        self._environ = environ
        self._problems = problems
        # Progress is stored for each destination, and each selection.
        self._destination = _destination(plan, environ) + (f" {only.text}" if only else "")
        label = re.sub(r"[^\w.-]", "_", self._exporter)
        self._progress_file = os.path.join(folder, f"{REPLAY_PREFIX}{label}.json")
        stored = {} if again else mapping(self._all_progress().get(self._destination))
        self._stored: Mapping[str, Any] = stored
        self._sink_state: Mapping[str, Any] = mapping(stored.get("sink"))
        self._inputs: dict[str, Input] = {}
        json_files = [path for path in paths if not path.endswith(SUFFIX)]
        if json_files:
            self._inputs["files"] = JsonFiles(json_files, mapping(stored.get("files")), self._damaged)
        if len(json_files) < len(paths):
            spool = mapping(stored.get("spool"))
            if not spool:
                spool["processes"], self._sink_state = left_by_shipper(folder, plan, anew=again)
            self._inputs["spool"] = Spool(folder, spool, problems)
        self._positions = {name: input_.position() for name, input_ in self._inputs.items()}
        self.sent = self.lost = 0
        self._damages = 0

    def run(
        self,
        timeout: float,
        portion_sent: Callable[[], None] = lambda: None,
        on_failure: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Send all spans. Raises TracingError if that fails; the next replay continues where this one stopped.

        A failing delivery is retried for ``timeout`` seconds, and ``on_failure`` is called with each failure that may
        pass.
        """
        retried = partial(_retried, timeout, on_failure)
        sink: Sink | None = None
        try:
            for name, input_ in self._inputs.items():
                for batches in self._portions(input_):
                    if sink is None:
                        sink = retried(self._make_sink)
                    if batches:
                        retried(partial(sink.deliver, batches))
                    self.sent += sum(len(batch.spans) for batch in batches)
                    self._reached(name, input_.position(), sink.checkpoint())
                    portion_sent()
                # Also advance past the last span, so that damage after it is not reported twice.
                if input_.position() != self._positions[name]:
                    self._reached(name, input_.position(), sink.checkpoint() if sink else self._sink_state)
        finally:
            if sink is not None:
                sink.close()

    def count(self, portion_read: Callable[[], None] = lambda: None) -> None:
        """Count all spans as sent without sending them."""
        for input_ in self._inputs.values():
            for batches in self._portions(input_):
                self.sent += sum(len(batch.spans) for batch in batches)
                portion_read()

    def _portions(self, input_: Input) -> Iterator[list[Batch]]:
        for batches in input_.portions():
            yield batches if self._only is None else self._only.of(batches)

    def _make_sink(self) -> Sink:
        return make_sink(
            self._exporter,
            SinkContext(
                self._plan,
                self._sink_state,
                self._remember,
                self._problems.count,
                self._environ,
                self._problems.warn_once,
                lost=self._lose,
            ),
        )

    def _lose(self, text: str, number: int) -> None:
        self.lost += number
        self._problems.count(text, number)

    def _reached(self, name: str, position: Mapping[str, Any], sink_state: Mapping[str, Any]) -> None:
        self._positions[name] = position
        self._sink_state = sink_state
        self._remember(sink_state)

    def _remember(self, sink_state: Mapping[str, Any]) -> None:
        try:
            progress = {**self._stored, **self._positions, "sink": sink_state}
            text = json.dumps({**self._all_progress(), self._destination: progress})
            write_atomically(self._progress_file, text.encode())
        except OSError as error:
            self._problems.warn_once(
                f"cannot store the progress in {self._progress_file!r}: {error.strerror}; the next replay starts from "
                "the beginning"
            )

    def _all_progress(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            return mapping(json.loads(read_file(self._progress_file)))
        return {}

    def _damaged(self, text: str) -> None:
        self._problems.count("{count} lines or spans could not be read and were skipped", 1)
        if self._damages < _SHOWN:
            self._problems.warn_once(text)
        self._damages += 1


def _retried(timeout: float, on_failure: Callable[[str], None], action: Callable[[], T]) -> T:
    """The result of ``action``, with retries for ``timeout`` seconds; ``on_failure`` is called with each failure."""
    deadline = time.monotonic() + timeout
    backoff = Backoff()
    while True:
        try:
            return action()
        except (SettingError, RefusesAllError):
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the next attempt may succeed
            failure = error
        message, asked = reason(failure), retry_after(failure)
        left = deadline - time.monotonic()
        if asked:
            message += f" (it asks for a retry after {asked:g} s)"
        if left <= asked:
            raise DeliveryError(message) from failure
        on_failure(message)
        time.sleep(min(max(backoff.next(), asked), left))


@contextlib.contextmanager
def held(folder: str, *, is_spool: bool) -> Iterator[None]:
    """Locks this folder against other replays and shippers. Raises TracingError if one is running there."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(PermissionError):  # the folder cannot be listed, only its files can be read
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TracingError(f"another replay is running in {folder!r}") from None
        if is_spool:
            stack.enter_context(_without_shipper(folder))
        yield


@contextlib.contextmanager
def _without_shipper(folder: str) -> Iterator[None]:
    try:
        lock = take_lock(folder)
    except OSError:  # not writable, so a shipper cannot use it either
        yield
        return
    if lock is None:
        figures = read(folder)
        failing = [each.error for each in figures.destinations if each.is_failing] if figures is not None else []
        text = f"a shipper is running for the spool {folder!r} and delivers it"
        if failing:
            text += f" once it can: {failing[0]}; run this command again once Ray has ended here"
        raise TracingError(text)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, LOCK))
        os.close(lock)


def check(plan: ShipPlan, environ: Mapping[str, str]) -> None:
    """Make the sink of the plan, and close it again: nothing is sent. Raises TracingError if it cannot work now."""
    (exporter,) = plan.exporters
    # Invalid settings have been reported, and without a state there is nothing else to be said.
    context = SinkContext(plan, {}, lambda _state: None, lambda *_loss: None, environ, lambda _problem: None)
    make_sink(exporter, context).close()


def mapping(found: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return found if isinstance(found, dict) else {}


def _destination(plan: ShipPlan, environ: Mapping[str, str]) -> str:
    """A digest that identifies a destination, regardless of time-outs and tokens."""
    (exporter,) = plan.exporters
    identity = destination_of(exporter, plan, environ, lambda _problem: None).identity
    return hashlib.sha256(json.dumps(identity).encode("utf-8", "replace")).hexdigest()[:16]


def left_by_shipper(folder: str, plan: ShipPlan, *, anew: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The positions in the spool at which a first replay starts, and the state of the sink there.

    If the shipper that left the spool delivered to the same destination, these are where it stopped. Otherwise it is
    the beginning, but with the open spans whose segments are gone.
    """
    (exporter,) = plan.exporters
    with contextlib.suppress(OSError, ValueError):
        theirs = ShipPlan.load(folder)
        same = exporter in theirs.exporters and _same_place(exporter, plan, theirs)
        if same and not anew:
            return _shipped(folder, file_name(exporter)), _shipped(folder, file_name(exporter), "sink")
    begun: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if is_progress_file(name):
                for process, entry in _shipped(folder, name).items():
                    nothing = {"sequence": 0, "offset": 0, "openings": [], "in_order": False}
                    begun.setdefault(process, {**nothing, "interrupted": [], "maybe_ended": []})
                    begun[process]["openings"] += mapping(entry).get("openings", [])
                    begun[process]["in_order"] |= bool(mapping(entry).get("in_order"))
                    for key in ("interrupted", "maybe_ended"):
                        begun[process][key] += mapping(entry).get(key, [])
    return begun, {}


def _shipped(folder: str, name: str, part: str = "processes") -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return mapping(mapping(json.loads(read_file(os.path.join(folder, name)))).get(part))
    return {}


def _same_place(exporter: str, ours: ShipPlan, theirs: ShipPlan) -> bool:
    """Whether the other plan delivers there too. Of its environment, which is not stored, only the digest is known."""
    nothing: dict[str, str] = {}
    identities = [destination_of(exporter, plan, nothing, lambda _problem: None).identity for plan in (ours, theirs)]
    return identities[0] == identities[1] and (exporter == "local" or ours.environment == theirs.environment)


# --- what is replayed -------------------------------------------------------------------------------------------------
#
# Each input yields its spans in ``portions`` of about a mebibyte, from the position where an earlier one stopped. It
# knows its ``position`` at any time, as JSON. Nothing is changed.

_PORTION_BYTES = 1024 * 1024

_TAIL_BYTES = 4096
"""A file is recognized by this many bytes before the stored offset: another file has other ids there."""

Damage = Callable[[str], None]


class JsonFiles:
    """The OTLP-JSON files of one folder, gzipped or not. They may be growing: only complete lines count.

    ``stored`` is an earlier :meth:`position`, and ``damage`` is called for lines that cannot be read and are skipped.
    """

    def __init__(self, paths: Sequence[str], stored: Mapping[str, Any], damage: Damage) -> None:
        self._damage = damage
        self._places = {path: _place(path, stored.get(os.path.basename(path))) for path in paths}
        names = set(map(os.path.basename, paths))
        # Files that are not part of this replay keep their positions.
        folder = os.path.dirname(paths[0])
        self._others = {
            name: entry
            for name, entry in stored.items()
            if name not in names and os.path.exists(os.path.join(folder, name))
        }

    def portions(self) -> Iterator[list[Batch]]:
        spans: dict[tuple[bytes, bytes], list[bytes]] = {}
        size = 0
        for path, place in self._places.items():
            for groups in self._lines(path, place):
                for group in groups:
                    spans.setdefault((group.resource, group.scope), []).extend(group.spans)
                    size += sum(map(len, group.spans))
                if size >= _PORTION_BYTES:
                    yield [Batch(*head, found) for head, found in spans.items()]
                    spans, size = {}, 0
        if spans:
            yield [Batch(*head, found) for head, found in spans.items()]

    def position(self) -> Mapping[str, Any]:
        places = {os.path.basename(path): place.stored() for path, place in self._places.items() if place.offset}
        return {**self._others, **places}

    def _lines(self, path: str, place: _Position) -> Iterator[Sequence[Group]]:
        """The spans of each line; advances ``place``."""
        try:
            with open(path, "rb") as raw:
                file = unpacked(path, raw)
                file.seek(place.offset)
                too_long = False
                while line := file.readline(MAX_LINE):
                    groups: Sequence[Group] | None = ()
                    is_partial = len(line) == MAX_LINE and not line.endswith(b"\n")
                    if is_partial and not too_long:
                        self._damage(f"{path}, byte {place.offset}: the line is longer than {MAX_LINE >> 20} MiB")
                    elif not too_long:
                        line = whole(line, file.readline)
                        groups = self._parsed(line, f"{path}, byte {place.offset}")
                    if groups is None:
                        break
                    too_long = is_partial
                    place.move(line)
                    yield groups
        except EOFError:
            pass  # a compressed file that is still being written
        except (OSError, ValueError) as error:
            where = f"{path}, byte {place.offset}" if place.offset else path
            missing = "; the rest of the file is missing" if place.offset else ""
            self._damage(f"{where}: {getattr(error, 'strerror', None) or error}{missing}")

    def _parsed(self, line: bytes, where: str) -> Sequence[Group] | None:
        """The spans of a line; None if it is still being written."""
        if line.isspace():
            return ()
        try:
            groups, wrong = traces(line)
        except FormatError as error:
            # A prefix of a JSON object is never a valid one, so an unfinished line always ends up here.
            if not line.endswith(b"\n"):
                return None
            self._damage(f"{where}: {error}")
            return ()
        for text in wrong:
            self._damage(f"{where}: {text}")
        return groups


class _Position:
    """How far a file has been read, in decompressed bytes."""

    def __init__(self, offset: int = 0, tail: bytes = b"") -> None:
        self.offset = offset
        self._tail = tail

    def move(self, line: bytes) -> None:
        self.offset += len(line)
        self._tail = line[-_TAIL_BYTES:] if len(line) >= _TAIL_BYTES else (self._tail + line)[-_TAIL_BYTES:]

    def stored(self) -> dict[str, Any]:
        return {"offset": self.offset, "tail": hashlib.sha256(self._tail).hexdigest()}


def _place(path: str, stored: Any) -> _Position:
    """The place in this file that ``stored`` gives; the beginning, if it gives none or belongs to another file."""
    if isinstance(stored, dict):
        with (
            contextlib.suppress(OSError, EOFError, ValueError, TypeError, KeyError),
            open(path, "rb") as raw,
        ):
            offset = int(stored["offset"])
            file = unpacked(path, raw)
            file.seek(max(0, offset - _TAIL_BYTES))
            place = _Position(offset, file.read(min(offset, _TAIL_BYTES)))
            if place.stored() == stored:
                return place
    return _Position()


class Spool:
    """The remaining spans in a spool folder. Interrupted spans are closed, as a shipper does.

    ``stored`` is an earlier :meth:`position`. Damage and losses are counted by ``problems``.
    """

    def __init__(self, folder: str, stored: Mapping[str, Any], problems: Problems) -> None:
        logs = None
        with contextlib.suppress(OSError, ValueError):
            logs = ShipPlan.load(folder).logs
        try:
            self._follower = Follower(stored.get("processes", {}), problems, reports=True, logs=logs)
        except (ValueError, TypeError, KeyError):
            self._follower = Follower({}, problems, reports=True, logs=logs)
        snapshot = Folder(folder).snapshot(self._follower.open_processes())
        self._snapshot = _lived_on(folder, _sensible(snapshot, problems))

    def portions(self) -> Iterator[list[Batch]]:
        yield from self._follower.follow(self._snapshot)

    def position(self) -> Mapping[str, Any]:
        return {"processes": self._follower.positions()}


Input = JsonFiles | Spool


def _sensible(snapshot: FolderSnapshot, problems: Problems) -> FolderSnapshot:
    """The snapshot with files that no process can have written as empty: nobody knows where the spool comes from."""
    processes = {}
    for name, process in snapshot.processes.items():
        segments = []
        for segment in process.segments:
            if segment.size > MAX_SEGMENT:
                problems.warn_once(f"{segment.path!r} is skipped: it is larger than {MAX_SEGMENT >> 20} MiB")
                segments.append(segment._replace(size=0, complete=True))
            else:
                segments.append(segment)
        processes[name] = process._replace(segments=segments)
    return snapshot._replace(processes=processes)


def _lived_on(folder: str, snapshot: FolderSnapshot) -> FolderSnapshot:
    """The snapshot in which the processes end when the shipper last worked, if it has seen as many alive until then.

    That is so if a machine or a container dies with all its processes. A process that has died earlier was removed with
    its segments, or makes one more than were alive.
    """
    here = [process for process in snapshot.processes.values() if process.segments]
    figures = read(folder)
    try:
        until = os.stat(os.path.join(folder, STATUS)).st_mtime_ns
    except OSError:
        return snapshot
    if figures is None or figures.writers < len(here):
        return snapshot
    ended = {
        name: process._replace(ended_at=max(process.ended_at, until))
        for name, process in snapshot.processes.items()
        if process.segments and process.ended_at is not None
    }
    return snapshot._replace(processes={**snapshot.processes, **ended})
