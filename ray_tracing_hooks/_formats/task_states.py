"""Files with the times at which each attempt of a task entered Ray's states, which spans do not record.

A file is named ``task-states-<session>.ndjson``, one for each session of Ray, in the folder of the span files. It has
one JSON object per line, in UTF-8. The first line describes the file: ``format``, which is :data:`FORMAT`, ``version``,
``session``, ``fetched_unix_nano``, and ``dropped``, the number of events that Ray reports as not kept. Each other line
is one attempt of a task: ``task_id`` (hex), ``attempt`` (from 0), ``name``, ``kind`` (``NORMAL_TASK``, ``ACTOR_TASK``,
``ACTOR_CREATION_TASK``), ``job_id`` and ``states``, which maps each state (``TaskStatus`` in Ray's ``common.proto``) to
the time when it began, in nanoseconds since the epoch by the clock of the node that observed it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

FORMAT = "ray_tracing_hooks.task_states"
VERSION = 1

_PREFIX, _SUFFIX = "task-states-", ".ndjson"
_MAX_LINE = 64 * 1024
_MOST_STATES = 100
_MOST_TIME = 1 << 63


class Attempt(NamedTuple):
    task_id: str
    attempt: int
    name: str
    kind: str
    job_id: str
    states: dict[str, int]


class About(NamedTuple):
    """The first line of the file."""

    session: str
    fetched_unix_nano: int
    dropped: int


def file_name(session: str) -> str:
    return f"{_PREFIX}{re.sub(r'[^A-Za-z0-9_.-]', '_', session)[:200]}{_SUFFIX}"


def is_file_name(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def lines(about: About, attempts: Iterable[Attempt]) -> Iterator[bytes]:
    yield _line({"format": FORMAT, "version": VERSION, **about._asdict()})
    for attempt in attempts:
        yield _line(attempt._asdict())


def read(path: str) -> tuple[About, Iterator[Attempt]]:
    """The contents of a file. Damaged lines are skipped, also at the end of a truncated file.

    Raises OSError if the file cannot be read, ValueError if it is not such a file, or of another version.
    """
    with open(path, "rb") as file:
        first = _parsed(file.readline(_MAX_LINE))
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise ValueError("it is not a file of task states")
    if first.get("version") != VERSION:
        raise ValueError(f"it has version {first.get('version')!r}, but only version {VERSION} can be read")
    about = About(str(first.get("session", "")), _number(first.get("fetched_unix_nano")), _number(first.get("dropped")))
    return about, _attempts(path)


def _attempts(path: str) -> Iterator[Attempt]:
    with open(path, "rb") as file:
        file.readline(_MAX_LINE)
        while line := file.readline(_MAX_LINE):
            found = _parsed(line)
            if not isinstance(found, dict) or not isinstance(states := found.get("states"), dict):
                continue
            if not isinstance(task_id := found.get("task_id"), str) or len(states) > _MOST_STATES:
                continue
            yield Attempt(
                task_id,
                _number(found.get("attempt")),
                str(found.get("name", "")),
                str(found.get("kind", "")),
                str(found.get("job_id", "")),
                {str(state): began for state, began in states.items() if _number(began) > 0},
            )


def _line(described: dict[str, Any]) -> bytes:
    return json.dumps(described, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < _MOST_TIME else 0
