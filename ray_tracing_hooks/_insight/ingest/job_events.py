"""Reads task states from the events of jobs that KubeRay's History Server keeps.

Its collector writes ``SESSION/NODE/job_events/JOB/NODE-HOUR-TIME.jsonl.gz``, with one event a line: a ``RayEvent``
(Ray's ``events_base_event.proto``) in protobuf's JSON, so ids are in base64. Before it uploads a file, the file is in
``SESSION/job_events/JOB``, without compression. An event may be there more than once, and the events of one attempt may
be in the files of several nodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import groupby

import msgspec

from ray_tracing_hooks._formats.otlp_json_read import MALFORMED
from ray_tracing_hooks._formats.task_states import Attempt
from ray_tracing_hooks._insight.ingest.files import UNREADABLE, FilePart, reason
from ray_tracing_hooks._insight.ingest.lines import lines_in
from ray_tracing_hooks._insight.ingest.sources import fetched, is_elsewhere, named

_FOLDER = "/job_events/"
_DRIVER = "DRIVER_TASK"


class _OfTask(msgspec.Struct, rename="camel"):
    task_id: bytes
    task_attempt: int = 0
    job_id: bytes = b""


class _Definition(_OfTask, rename="camel"):
    task_type: str = "ACTOR_TASK"
    task_name: str = ""
    actor_task_name: str = ""


class _Transition(msgspec.Struct):
    state: str
    timestamp: str


class _Lifecycle(_OfTask, rename="camel"):
    state_transitions: list[_Transition] = []


class _Event(msgspec.Struct, rename="camel"):
    session_name: str = ""
    task_definition_event: _Definition | None = None
    actor_task_definition_event: _Definition | None = None
    task_lifecycle_event: _Lifecycle | None = None


_decoded = msgspec.json.Decoder(_Event | list[_Event]).decode

_Sessions = dict[str, dict[tuple[str, int], Attempt]]


def sessions_of(place: str, warn: Callable[[str], None]) -> Iterator[tuple[str, int, list[Attempt]]]:
    """For each session below a folder or a URL for fsspec: its name, the number of attempts whose definition is
    missing, and the other attempts, without those of drivers. One session is in memory at a time.

    ``warn`` is called with what cannot be read, as sentences. Raises PlaceError or OSError.
    """
    for _, files in groupby(_files(place), key=lambda path: path.rpartition(_FOLDER)[0].rpartition("/")[0]):
        found: _Sessions = {}
        for path in files:
            _read(path, found, warn)
        for session, attempts in found.items():
            # Without its definition, the kind of an attempt is unknown.
            whole = [each for each in attempts.values() if each.kind]
            yield session, len(attempts) - len(whole), [each for each in whole if each.states and each.kind != _DRIVER]


def _files(place: str) -> Sequence[str]:
    """The files of events, those of a session together."""
    folder = fetched(place, lambda name: _FOLDER in name) if is_elsewhere(place) else os.path.abspath(place)
    if os.path.isfile(folder):
        return [folder]
    inside = (os.path.join(at, name) for at, _, names in os.walk(folder, onerror=_refuse) for name in names)
    return sorted(path for path in inside if (is_elsewhere(place) or _FOLDER in path) and os.path.isfile(path))


def _refuse(error: OSError) -> None:
    raise error


def _read(path: str, found: _Sessions, warn: Callable[[str], None]) -> None:
    bad = 0
    try:
        with open(path, "rb") as file:
            for _, _, line in lines_in(FilePart(path), file):
                try:
                    events = _decoded(line or b"")
                    # Earlier collectors wrote one list.
                    for event in events if isinstance(events, list) else [events]:
                        _add(event, found.setdefault(event.session_name, {}))
                except (*MALFORMED, msgspec.MsgspecError):
                    bad += 1
    except UNREADABLE as error:
        warn(f"{named(path)}: {reason(error)}; its other events are missing")
    if bad:
        warn(f"{named(path)}: lines that are not events of Ray, left out: {bad:,}")


def _add(event: _Event, attempts: dict[tuple[str, int], Attempt]) -> None:
    if about := event.task_definition_event or event.actor_task_definition_event:
        known = _attempt(about, attempts)
        attempts[known[:2]] = known._replace(name=about.task_name or about.actor_task_name, kind=about.task_type)
    if lifecycle := event.task_lifecycle_event:
        states = _attempt(lifecycle, attempts).states
        for each in lifecycle.state_transitions:
            # As in the GCS, the last time of a state counts.
            states[each.state] = max(_nanoseconds(each.timestamp), states.get(each.state, 0))


def _attempt(of: _OfTask, attempts: dict[tuple[str, int], Attempt]) -> Attempt:
    key = of.task_id.hex(), of.task_attempt
    return attempts.setdefault(key, Attempt(*key, "", "", of.job_id.hex(), {}))


def _nanoseconds(text: str) -> int:
    """A time in protobuf's JSON, which has up to nine digits behind the second. Raises ValueError for another text."""
    second, _, fraction = text.removesuffix("Z").partition(".")
    return round(datetime.fromisoformat(f"{second}+00:00").timestamp()) * 10**9 + int(fraction.ljust(9, "0")[:9])
