"""The inputs of a replay: OTLP-JSON files, and a spool without a running shipper.

Each input yields its spans in ``portions`` of about a mebibyte, from the position where an earlier one stopped, which
had sent ``before`` spans until then. It knows its ``position`` at any time, as JSON, how many ``files`` it has read
spans from, how many bytes of their ``size`` are ``done``, and how many spans are ``left``. Nothing is changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ray_tracing_hooks._formats.otlp import Group, count
from ray_tracing_hooks._formats.otlp_json_read import MAX_LINE, traces, unpacked, whole
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._ship.figures import read
from ray_tracing_hooks._ship.files import STATUS
from ray_tracing_hooks._ship.folder import Folder, FolderSnapshot
from ray_tracing_hooks._ship.follow import Follower
from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import Batch
from ray_tracing_hooks._spool.layout import MAX_SEGMENT
from ray_tracing_hooks._spool.reader import count_spans

_PORTION_BYTES = 1024 * 1024

_TAIL_BYTES = 4096
"""A file is recognized by this many bytes before the stored offset: another file has other ids there."""

_START_TIMES = (b'"startTimeUnixNano":', b'"start_time_unix_nano":')
"""Each span has one of these; inside of a text the quotes would be escaped."""

Damage = Callable[[str], None]


class JsonFiles:
    """The OTLP-JSON files of one folder, gzipped or not. They may be growing: only complete lines count.

    ``stored`` is an earlier :meth:`position`, and ``damage`` is called for lines that cannot be read and are skipped.
    """

    def __init__(self, paths: Sequence[str], stored: Mapping[str, Any], damage: Damage) -> None:
        self._damage = damage
        self._places = {path: _place(path, stored.get(os.path.basename(path))) for path in paths}
        names = set(map(os.path.basename, paths))
        folder = os.path.dirname(paths[0])
        # Keep the positions of existing files that are not part of this replay.
        self._others = {
            name: entry
            for name, entry in stored.items()
            if name not in names and os.path.exists(os.path.join(folder, name))
        }
        self.before = sum(place.spans for place in self._places.values())
        self.files = 0
        self.size = sum(map(_size, paths))
        self.done = 0

    def portions(self) -> Iterator[list[Batch]]:
        spans: dict[tuple[bytes, bytes], list[bytes]] = {}
        size = done = 0
        for path, place in self._places.items():
            fresh = True
            for groups, here in self._lines(path, place):
                for group in groups:
                    spans.setdefault((group.resource, group.scope), []).extend(group.spans)
                    size += sum(map(len, group.spans))
                if groups and fresh:
                    self.files += 1
                    fresh = False
                if size >= _PORTION_BYTES:
                    self.done = done + here
                    yield [Batch(*head, found) for head, found in spans.items()]
                    spans, size = {}, 0
            done += _size(path)
            self.done = done
        if spans:
            yield [Batch(*head, found) for head, found in spans.items()]

    def position(self) -> Mapping[str, Any]:
        places = {os.path.basename(path): place.stored() for path, place in self._places.items() if place.offset}
        return {**self._others, **places}

    def left(self, position: Mapping[str, Any], until: float) -> tuple[int, bool]:
        spans = 0
        for path in self._places:
            entry = position.get(os.path.basename(path))
            with contextlib.suppress(OSError, EOFError, ValueError), open(path, "rb") as raw:
                file = unpacked(path, raw)
                file.seek(entry["offset"] if entry else 0)
                while line := file.readline(MAX_LINE):
                    spans += sum(map(line.count, _START_TIMES))
                    if time.monotonic() > until:
                        return spans, False
        return spans, True

    def _lines(self, path: str, place: _Place) -> Iterator[tuple[Sequence[Group], int]]:
        """The spans of each line, and the bytes of the file that have been read; advances ``place``."""
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
                    place.move(line, groups)
                    yield groups, raw.tell()
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
        for reason in wrong:
            self._damage(f"{where}: {reason}")
        return groups


class _Place:
    """How far a file has been read: the decompressed bytes, and the spans in them."""

    def __init__(self, offset: int = 0, spans: int = 0, tail: bytes = b"") -> None:
        self.offset = offset
        self.spans = spans
        self._tail = tail

    def move(self, line: bytes, groups: Sequence[Group]) -> None:
        self.offset += len(line)
        self.spans += count(groups)
        self._tail = line[-_TAIL_BYTES:] if len(line) >= _TAIL_BYTES else (self._tail + line)[-_TAIL_BYTES:]

    def stored(self) -> dict[str, Any]:
        return {"offset": self.offset, "spans": self.spans, "tail": hashlib.sha256(self._tail).hexdigest()}


def _place(path: str, stored: Any) -> _Place:
    """The place in this file that ``stored`` gives; the beginning, if it gives none or belongs to another file."""
    if isinstance(stored, dict):
        with (
            contextlib.suppress(OSError, EOFError, ValueError, TypeError, KeyError),
            open(path, "rb") as raw,
        ):
            offset = int(stored["offset"])
            file = unpacked(path, raw)
            file.seek(max(0, offset - _TAIL_BYTES))
            place = _Place(offset, int(stored["spans"]), file.read(min(offset, _TAIL_BYTES)))
            if place.stored() == stored:
                return place
    return _Place()


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
            self.before = int(stored.get("spans", 0))
        except (ValueError, TypeError, KeyError):
            self._follower, self.before = Follower({}, problems, reports=True, logs=logs), 0
        self._spans = self.before
        snapshot = Folder(folder).snapshot(self._follower.open_processes())
        self._snapshot = _lived_on(folder, _sensible(snapshot, problems))
        self._segments = {
            (process, segment.sequence): segment
            for process, found in self._snapshot.processes.items()
            for segment in found.segments
            if segment.size
        }
        self.files = 0
        self.size = self._snapshot.size
        self.done = 0

    def portions(self) -> Iterator[list[Batch]]:
        for batches in self._follower.follow(self._snapshot):
            self._spans += sum(len(batch.spans) for batch in batches)
            self.files = self._reached()
            yield batches
        self._reached()

    def position(self) -> Mapping[str, Any]:
        return {"processes": self._follower.positions(), "spans": self._spans}

    def left(self, position: Mapping[str, Any], until: float) -> tuple[int, bool]:
        spans = 0
        for (process, sequence), segment in sorted(self._segments.items()):
            entry = position.get("processes", {}).get(process) or {"sequence": 0, "offset": 0}
            if sequence >= entry["sequence"]:
                offset = entry["offset"] if sequence == entry["sequence"] else 0
                found, complete = count_spans(segment.path, offset, until)
                spans += found
                if not complete or time.monotonic() > until:
                    return spans, False
        return spans, True

    def _reached(self) -> int:
        """Update ``done`` from the follower's positions; returns the number of segments that it has begun."""
        self.done = begun = 0
        positions = self._follower.positions()
        for (process, sequence), segment in self._segments.items():
            entry = positions.get(process)
            if entry is not None and sequence <= entry["sequence"]:
                read = segment.size if sequence < entry["sequence"] else entry["offset"]
                self.done += read
                begun += read > 0
        return begun


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


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
