"""Ray calls in a table of spans: which execution belongs to which submission, and which call waits for which.

Submissions and executions are joined by parent, or else by task id; several executions of one task are its attempts.
An object id contains the id of the task that creates the object, so the objects of a ``ray.get`` identify the calls
that it waits for. Spans of Ray's own tracing can be read too; there ``ray.task_id`` on a submission is the caller's
task, so it is ignored.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.call_names import are_few, call_name
from ray_tracing_hooks._insight.model.columns import NONE
from ray_tracing_hooks._insight.model.table import Table

OTHER, SUBMISSION, EXECUTION, GET, WAIT, PUT, DRIVER = range(7)
"""A span's role in Ray."""

WAITS = (GET, WAIT)

EVERYWHERE, PARTLY, NOWHERE = "everywhere", "partly", "nowhere"
"""Where waiting (``ray.get`` and ``ray.wait``) was recorded, which shows what each caller waited for."""

_FIRST_PUT = 100_000_001
"""The index in the id of an object from ``ray.put`` is at least this; the index of a task's result counts from 1."""

_TASK_DIGITS, _OBJECT_DIGITS = 48, 56


class Place(NamedTuple):
    """Where a span ran, according to its attributes; strings are empty where an attribute is missing."""

    node: str
    worker: str
    actor: str
    actor_class: str
    group: str
    """Concurrency group."""
    slots: int
    """How many methods of the actor may run at the same time."""
    is_asyncio: bool
    """Whether the span says that they share an event loop."""


class Calls:
    """The calls in a table, numbered from 0 in the order of their submissions, then of executions without one.

    ``role``        for each row: ``SUBMISSION``, ``EXECUTION``, ``GET``, ``WAIT``, ``PUT``, ``DRIVER`` or ``OTHER``.
    ``call_of``     for each row: its call; -1 if it is neither a submission nor an execution.
    ``submission``  for each call: the row of its submission, -1 if unknown.
    ``execution``   for each call: the row of its last attempt, -1 if none is known.
    ``function``    for each call: an index into ``functions``, the names of functions and methods. If
                    ``.options(name=...)`` gave the calls of a function a few names, each has an entry: ``f "name"``.
    ``frame``       for each row: the row of the execution or root span whose code it is part of. A driver without a
                    root span has a frame without a row: such frames are numbered from ``len(table)``, one for each
                    process.
    ``internal``    whether Ray's internal tasks and actors make spans; None if that is not recorded.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.places = [_place(site) for site in table.sites]
        by_name = [role_of(name) for name in table.names]
        self.role = bytearray(map(by_name.__getitem__, table.name))
        self._records_waits = _waits_recorded(table, any(role in WAITS for role in by_name))
        self.internal = _internal_recorded(table)
        self.functions: list[str] = []
        index: dict[str, int] = {}
        self._function_of_name = array("I")
        for name in table.names:
            function = call_name(name)
            if function not in index:
                index[function] = len(self.functions)
                self.functions.append(function)
            self._function_of_name.append(index[function])
        self._index = index
        self._is_stock = _stock(table)
        self.submission, self.execution = array("q"), array("q")
        self.function = array("I")
        self._attempts: dict[int, list[int]] = {}
        self.call_of = self._join()
        self._group_by_name()
        self._by_id: dict[str, int] | None = None
        self._puts: dict[str, int] | None = None
        self._extent: dict[int, list[int]] = {}
        self._resource_of_extent: dict[int, int] = {}
        self.frame = self._frames()
        self._members: dict[int, list[int]] | None = None
        self._drivers: list[int] | None = None

    def __len__(self) -> int:
        return len(self.submission)

    # --- calls ----------------------------------------------------------------------------------------------------

    def attempts(self, call: int) -> Sequence[int]:
        """The rows of its executions, in order of attempts."""
        several = self._attempts.get(call)
        if several is not None:
            return several
        return [self.execution[call]] if self.execution[call] >= 0 else []

    def is_last_attempt(self, row: int) -> bool:
        """Whether an execution was not retried."""
        return self.execution[self.call_of[row]] == row

    def function_of(self, row: int) -> str:
        """The function of a submission or execution; the name of any other span."""
        call = self.call_of[row]
        return self.functions[self.function[call] if call >= 0 else self._function_of_name[self.table.name[row]]]

    def name_of(self, row: int) -> str:
        """The name that ``.options(name=...)`` gave the call; empty if none was given."""
        named, call = self.table.named, self.call_of[row]
        rows = (row,) if call < 0 else (row, self.submission[call], self.execution[call])
        return next((named[each][0] for each in rows if each in named), "") if named else ""

    def place(self, row: int) -> Place:
        return self.places[self.table.site[row]]

    def submitted_ns(self, call: int) -> int:
        """When Ray received the call; 0 if unknown. Never after the start of the first attempt."""
        table, row = self.table, self.submission[call]
        attempts = self.attempts(call)
        begun = table.start[attempts[0]] if attempts else 0
        if row >= 0:
            end = table.end_or_now(row)
            # An execution may start before `.remote()` has returned.
            return max(table.start[row], min(end, begun)) if begun else end
        return table.submitted[attempts[0]] if attempts else 0

    def queued_ns(self, call: int) -> int | None:
        """Queue time: from the submission to the start of the first attempt; None if either is unknown.

        Never negative. It includes waiting for arguments, for the actor and for a worker.
        """
        attempts, submitted = self.attempts(call), self.submitted_ns(call)
        if not attempts or not submitted:
            return None
        return max(0, self.table.start[attempts[0]] - submitted)

    def call_of_task(self, task: int) -> int:
        """The call that created a task, by the index of the task's id in the table; -1 if there is none."""
        return self._call_of_task[task] if task != NONE else -1

    def is_generator(self, row: int) -> bool:
        """Whether an execution is of a generator, whose items are available before it ends."""
        return self.table.attribute(row, names.RAY_GENERATOR_ITEMS) is not None

    # --- objects --------------------------------------------------------------------------------------------------

    def producer(self, object_id: str) -> int:
        """The call that creates the object, -1 if unknown."""
        if len(object_id) != _OBJECT_DIGITS or is_put(object_id):
            return -1
        if self._by_id is None:
            wanted = {each[:_TASK_DIGITS] for ids in self.table.objects.values() for each in ids}
            wanted.update(each[:_TASK_DIGITS] for ids in self.table.ready.values() for each in ids)
            self._by_id = {}
            for index, call in enumerate(self._call_of_task):
                if call >= 0 and (text := self.table.ids[index]) in wanted:
                    self._by_id[text] = call
        return self._by_id.get(object_id[:_TASK_DIGITS], -1)

    def put_of(self, object_id: str) -> int:
        """The row of the ``ray.put`` that stored the object, -1 if unknown."""
        if self._puts is None:
            self._puts = {each: row for row, ids in self.table.objects.items() if self.role[row] == PUT for each in ids}
        return self._puts.get(object_id, -1)

    def objects_of(self, row: int) -> tuple[str, ...]:
        """The object ids of a submission's arguments, or of what a wait waits for."""
        return self.table.objects.get(row, ())

    def is_cut(self, row: int) -> bool:
        """Whether a wait waits for more objects than its span lists."""
        many = self.table.attribute(row, names.RAY_OBJECT_COUNT)
        return isinstance(many, int) and many > len(self.objects_of(row))

    def wanted(self, row: int) -> int:
        """How many objects had to be ready for a ``ray.wait`` to return."""
        return self._number(row, names.RAY_NUM_RETURNS, 1)

    def ready_count(self, row: int) -> int:
        """How many objects were ready when a ``ray.wait`` returned."""
        return self._number(row, names.RAY_READY_OBJECT_COUNT, len(self.table.ready.get(row, ())))

    def _number(self, row: int, key: str, default: int) -> int:
        found = self.table.attribute(row, key)
        return found if isinstance(found, int) else default

    # --- frames ---------------------------------------------------------------------------------------------------

    def frame_start(self, frame: int) -> int:
        return self.table.start[frame] if frame < len(self.table) else self._extent[frame][0]

    def frame_end(self, frame: int) -> int:
        return self.table.end_or_now(frame) if frame < len(self.table) else self._extent[frame][1]

    def members(self, frame: int) -> Sequence[int]:
        """The rows of the submissions, waits and puts that a frame's code made, by start."""
        if self._members is None:
            self._members = {}
            for row, role in enumerate(self.role):
                if role in _MADE:
                    self._members.setdefault(self.frame[row], []).append(row)
        return self._members.get(frame, ())

    def frame_of(self, row: int) -> int:
        """The frame that a row is part of; a frame is part of itself."""
        return self.frame[row] if row < len(self.table) else row

    def frames_with_members(self) -> list[int]:
        """The frames that made calls, waited, or stored objects."""
        self.members(-1)
        return list(self._members or ())

    def frames(self) -> list[int]:
        """All frames: executions, root spans, and frames without a row."""
        frame = self.frame
        return [row for row in range(len(self.table)) if frame[row] == row] + list(self._extent)

    def drivers(self) -> list[int]:
        """The frames of drivers: their own spans if there are any, else the frames without a row."""
        if self._drivers is None:
            self._drivers = [row for row, role in enumerate(self.role) if role == DRIVER] or list(self._extent)
        return self._drivers

    def frame_name(self, frame: int) -> str:
        """The function of a frame, or the name of its driver or root span."""
        if frame < len(self.table):
            name = self.function_of(frame)
            return name.removesuffix(_DRIVER_SUFFIX) if self.role[frame] == DRIVER else name
        return "driver"

    # --- what was recorded ----------------------------------------------------------------------------------------

    def records_waits(self, frame: int) -> bool:
        """Whether the process of a frame recorded its waits. If not, it may have waited at any time."""
        return self._records_waits[self.resource_of(frame)]

    def resource_of(self, frame: int) -> int:
        """The index in the table of the Resource of a frame's process."""
        return self.table.resource[frame] if frame < len(self.table) else self._resource_of_extent[frame]

    @cached_property
    def waiting(self) -> str:
        """``EVERYWHERE``, ``PARTLY`` or ``NOWHERE``: how many processes that ran a driver or call recorded waits."""
        ran = {self.resource_of(frame) for frame in self.drivers()}
        ran.update({self.table.resource[row] for row, role in enumerate(self.role) if role == EXECUTION})
        recorded = [self._records_waits[resource] for resource in ran]
        return NOWHERE if not any(recorded) else EVERYWHERE if all(recorded) else PARTLY

    # --- making ---------------------------------------------------------------------------------------------------

    def _join(self) -> array[int]:
        table, role = self.table, self.role
        call_of = array("q", b"\xff" * 8 * len(table))
        self._call_of_task = call_of_task = array("q", b"\xff" * 8 * len(table.ids))
        for row, what in enumerate(role):
            if what == SUBMISSION:
                call = self._new(row, -1)
                call_of[row] = call
                task = table.task[row]
                if task != NONE and not self._is_stock[table.resource[row]]:
                    call_of_task[task] = call
        for row, what in enumerate(role):
            if what != EXECUTION:
                continue
            above, task = table.parent[row], table.task[row]
            call = call_of[above] if above >= 0 and role[above] == SUBMISSION else -1
            if call < 0 and task != NONE:
                call = call_of_task[task]
            if call < 0:
                call = self._new(-1, row)
            elif self.execution[call] < 0:
                self.execution[call] = row
            else:
                self._attempts.setdefault(call, [self.execution[call]]).append(row)
                self.execution[call] = row
            call_of[row] = call
            if task != NONE:
                call_of_task[task] = call
        return call_of

    def _new(self, submission: int, execution: int) -> int:
        self.submission.append(submission)
        self.execution.append(execution)
        self.function.append(self._function_of_name[self.table.name[max(submission, execution)]])
        return len(self.submission) - 1

    def _group_by_name(self) -> None:
        """Group the named calls of a function by their names, if the names are few: ``eval``, but not ``trial-17``."""
        by_function: dict[int, dict[int, str]] = {}
        for row, (name,) in self.table.named.items():
            call = self.call_of[row]
            own = self.functions[self.function[call]] if call >= 0 else ""
            # An actor's creation has the name of the actor.
            if own and not own.endswith(".__init__") and name not in (own, own.rpartition(".")[2]):
                by_function.setdefault(self.function[call], {})[call] = name
        for function, calls in by_function.items():
            different = set(calls.values())
            if are_few(len(different), len(calls)):
                for call, name in calls.items():
                    label = f'{self.functions[function]} "{name}"'
                    index = self._index.setdefault(label, len(self.functions))
                    if index == len(self.functions):
                        self.functions.append(label)
                    self.function[call] = index

    def _frames(self) -> array[int]:
        table, role = self.table, self.role
        frame = array("q", b"\xff" * 8 * len(table))
        alone: dict[int, int] = {}
        for row in range(len(table)):
            path = []
            here = row
            while frame[here] < 0:
                path.append(here)
                above = table.parent[here]
                if role[here] in _FRAMES or (above < 0 and role[here] not in _MADE):
                    frame[here] = here
                elif above < 0:
                    resource = table.resource[here]
                    frame[here] = alone.setdefault(resource, len(table) + len(alone))
                    self._resource_of_extent[frame[here]] = resource
                    self._extend(frame[here], here)
                else:
                    here = above
            for each in path:
                frame[each] = frame[here]
        return frame

    def _extend(self, frame: int, row: int) -> None:
        start, end = self.table.start[row], self.table.end_or_now(row)
        extent = self._extent.setdefault(frame, [start, end])
        extent[:] = min(extent[0], start), max(extent[1], end)


_MADE = (SUBMISSION, GET, WAIT, PUT)
_FRAMES = (EXECUTION, DRIVER)


def is_put(object_id: str) -> bool:
    """Whether ``ray.put`` created the object, rather than a task."""
    return _index(object_id) >= _FIRST_PUT


def is_item(object_id: str) -> bool:
    """Whether it may be a generator's item, available before the task ends: any result but the first."""
    return 1 < _index(object_id) < _FIRST_PUT


def _index(object_id: str) -> int:
    try:
        return int.from_bytes(bytes.fromhex(object_id[_TASK_DIGITS:]), "little")
    except ValueError:
        return 0


def role_of(name: str) -> int:
    """The role of a span with this name."""
    if name.endswith(_EXECUTION_SUFFIX):
        return EXECUTION
    if name.endswith(_SUBMISSION_SUFFIX):
        return SUBMISSION
    if name.endswith(_DRIVER_SUFFIX):
        return DRIVER
    return _WAITING.get(name, OTHER)


_SUBMISSION_SUFFIX, _EXECUTION_SUFFIX = names.submission_name(""), names.execution_name("")
_DRIVER_SUFFIX = names.driver_name("")
_WAITING = {"ray.get": GET, names.AWAIT: GET, "ray.wait": WAIT, "ray.put": PUT}


def _place(site: dict[str, Any]) -> Place:
    slots = site.get(names.RAY_MAX_CONCURRENCY)
    return Place(
        node=str(site.get(names.RAY_NODE_ID) or ""),
        worker=str(site.get(names.RAY_WORKER_ID) or ""),
        actor=str(site.get(names.RAY_ACTOR_ID) or ""),
        actor_class=str(site.get(names.RAY_ACTOR_CLASS) or ""),
        group=str(site.get(names.RAY_CONCURRENCY_GROUP) or ""),
        slots=slots if isinstance(slots, int) and slots > 0 else 1,
        is_asyncio=site.get(names.RAY_ASYNCIO) is True,
    )


def _waits_recorded(table: Table, some: bool) -> list[bool]:
    """For each resource whether its process recorded its waits.

    Earlier versions did not write this to their files: for those, all processes are assumed to have if ``some`` did.
    """
    found = []
    for resource in table.resources:
        parts = resource.get(names.RESOURCE_PARTS)
        found.append({"get", "wait"} <= set(parts.split(",")) if isinstance(parts, str) else some)
    return found


def _internal_recorded(table: Table) -> bool | None:
    told = [parts for each in table.resources if isinstance(parts := each.get(names.RESOURCE_PARTS), str)]
    return any("internal" in parts.split(",") for parts in told) if told else None


def _stock(table: Table) -> list[bool]:
    """For each resource whether Ray's own tracing made its spans, as far as this can be determined."""
    return [resource.get(names.DISTRO_NAME) != names.SCOPE for resource in table.resources]
