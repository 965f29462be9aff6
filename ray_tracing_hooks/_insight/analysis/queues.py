"""What calls waited for before they ran, if files with task states are next to the files of spans.

Spans show when a call was submitted and when its code started. Only Ray knows what happened in between: the task waited
for its arguments, for resources and a worker, or for a busy actor, and its worker loaded its code. See
:mod:`ray_tracing_hooks._formats.task_states`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._formats.task_states import Attempt

ARGUMENTS = "arguments"
"""Other tasks had to create the arguments first."""
SCHEDULING = "scheduling"
"""The call waited for free resources and a worker, or for the creation of its actor."""
FETCHING = "fetching"
"""The call was sent to its worker, and its arguments were fetched to its node."""
ACTOR_QUEUE = "actor queue"
"""The actor was busy with other calls, or had to run earlier calls first."""
LOADING = "loading"
"""Its worker loaded the code and the arguments, with the modules that they import."""

PHASES = (ARGUMENTS, SCHEDULING, FETCHING, ACTOR_QUEUE, LOADING)

_RUNNING = "RUNNING"
_ENDS = ("FINISHED", "FAILED")
_PHASE_OF = {
    "PENDING_ARGS_AVAIL": ARGUMENTS,
    "PENDING_NODE_ASSIGNMENT": SCHEDULING,
    "PENDING_OBJ_STORE_MEM_AVAIL": SCHEDULING,
    "PENDING_ARGS_FETCH": FETCHING,
    "GETTING_AND_PINNING_ARGS": FETCHING,
    "SUBMITTED_TO_WORKER": FETCHING,
    "PENDING_ACTOR_TASK_ARGS_FETCH": FETCHING,
    "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY": ACTOR_QUEUE,
}
"""By task state of Ray 2.60 (``TaskStatus``)."""

_T = TypeVar("_T")

_SENT = "SUBMITTED_TO_WORKER"
_ACTOR_TASK = "ACTOR_TASK"


class Queued(NamedTuple):
    """How long one attempt waited in each phase until its worker had it, in nanoseconds."""

    arguments: int
    scheduling: int
    fetching: int
    actor_queue: int

    @property
    def total(self) -> int:
        return sum(self)


@dataclass
class States:
    """The task states found next to files of spans."""

    files: int = 0
    dropped: int = 0
    """The number of events that Ray reported as dropped."""
    problems: list[str] = field(default_factory=list)
    """Why files could not be read."""
    first: dict[str, dict[str, Queued]] = field(default_factory=dict)
    """By session and task, what its first attempt waited for. The session is empty if its file does not name it."""
    ran: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """By session and task, since when its worker had the first attempt, and when that ended, if it has ended."""

    def queued(self, session: str, task: str) -> Queued | None:
        """What the first attempt of a task waited for; None if unknown. An empty session may be any of them."""
        return _of(self.first, session, task)

    def loaded(self, session: str, task: str) -> tuple[int, int] | None:
        """As :meth:`queued`, since when its worker had it, and when that ended."""
        return _of(self.ran, session, task)


def _of(found: dict[str, dict[str, _T]], session: str, task: str) -> _T | None:
    tried = (session, "") if session else reversed(found)
    return next((found[each][task] for each in tried if task in found.get(each, ())), None)


def states_beside(paths: Iterable[str], tasks: Iterable[str] | None = None, sessions: Collection[str] = ()) -> States:
    """The states of ``tasks``, or of all, from files in the folders ``paths`` or next to the files ``paths``.

    Files of other sessions than ``sessions`` are left out, unless there are none: then those of all sessions are read.
    """
    found = States()
    files = state_files(paths)
    # There may be a million tasks, and usually there are no files.
    wanted = None if tasks is None or not files else set(tasks)
    for path in files:
        try:
            about, attempts = task_states.read(path)
            if sessions and about.session and about.session not in sessions:
                continue
            first, ran = found.first.setdefault(about.session, {}), found.ran.setdefault(about.session, {})
            for attempt in attempts:
                if attempt.attempt == 0 and (wanted is None or attempt.task_id in wanted):
                    queued = waited(attempt)
                    if queued is not None:
                        first[attempt.task_id] = queued
                        if end := max(attempt.states.get(state, 0) for state in _ENDS):
                            ran[attempt.task_id] = attempt.states[_RUNNING], end
        except OSError as error:
            found.problems.append(f"{path}: {error.strerror or error}")
        except ValueError as error:
            found.problems.append(f"{path}: {error}")
        else:
            found.files += 1
            found.dropped += about.dropped
    return found


def waited(attempt: Attempt) -> Queued | None:
    """What an attempt waited for; None if it did not run, or if that is unknown."""
    began = attempt.states.get(_RUNNING)
    if began is None:
        return None
    before = sorted((time, state) for state, time in attempt.states.items() if state in _PHASE_OF and time <= began)
    if not before:
        return None
    times: Counter[str] = Counter()
    for (start, state), (end, _) in zip(before, [*before[1:], (began, "")], strict=True):
        # An actor accepts a call once it is done with the earlier ones.
        is_queue = state == _SENT and attempt.kind == _ACTOR_TASK
        times[ACTOR_QUEUE if is_queue else _PHASE_OF[state]] += end - start
    return Queued(*(times[phase] for phase in PHASES if phase != LOADING))


@dataclass
class FunctionQueue:
    """What the calls of one function waited for, in total."""

    name: str
    calls: int = 0
    times: Counter[str] = field(default_factory=Counter)
    """In nanoseconds, by phase."""

    @property
    def total(self) -> int:
        return sum(self.times.values())


def by_function(calls: Iterable[tuple[str, Queued, int]]) -> list[FunctionQueue]:
    """The queue times of ``calls``, the longest first: function, queue times, and how long the worker loaded it."""
    found: dict[str, FunctionQueue] = {}
    for function, queued, loading in calls:
        each = found.setdefault(function, FunctionQueue(function))
        each.calls += 1
        for phase, time in zip(PHASES, (*queued, loading), strict=True):
            each.times[phase] += time
    return sorted(found.values(), key=lambda each: (-each.total, each.name))


def state_files(paths: Iterable[str]) -> list[str]:
    """The files of task states in the folders ``paths``, or next to the files ``paths``."""
    folders = dict.fromkeys(path if os.path.isdir(path) else os.path.dirname(path) or "." for path in paths)
    found = []
    for folder in folders:
        with suppress(OSError):  # the folder may be unreadable although the file is not, or it may be gone
            names = [name for name in os.listdir(folder) if task_states.is_file_name(name)]
            found += [path for name in names if os.path.isfile(path := os.path.join(folder, name))]
    return sorted(found)
