"""Ray calls in a table of spans: which execution belongs to which submission, and which call waits for which.

Submissions and executions are joined by parent, or else by task id; several executions of one task are its attempts.
An object id contains the id of the task that creates the object, so the objects of a ``ray.get`` identify the calls
that it waits for. Spans of Ray's own tracing can be read too; there ``ray.task_id`` on a submission is the caller's
task, so it is ignored.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.columns import NONE
from ray_tracing_hooks._insight.model.grouped import distinct, most_at_once, tops
from ray_tracing_hooks._insight.model.id_lists import IdLists
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.runs import by_row
from ray_tracing_hooks._insight.model.span import CONSUMER, SERVER, are_few, call_name, is_creation
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._libraries import LIBRARIES

OTHER, SUBMISSION, EXECUTION, GET, WAIT, PUT, DRIVER, FUTURE = range(8)
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

    @property
    def label(self) -> str:
        """``Class#1a2b3c4d``: the class of the actor, and the beginning of its id."""
        return f"{self.actor_class.rpartition('.')[2]}#{self.actor[:8]}"


class Calls:
    """The calls in a table, numbered from 0 in the order of their submissions, then of executions without one.

    ``role``        for each row: ``SUBMISSION``, ``EXECUTION``, ``GET``, ``WAIT``, ``PUT``, ``DRIVER``, ``FUTURE`` or
                    ``OTHER``.
    ``call_of``     for each row: its call; -1 if it is neither a submission nor an execution.
    ``submission``  for each call: the row of its submission, -1 if unknown.
    ``execution``   for each call: the row of its last attempt, -1 if none is known.
    ``first``       for each call: the row of its first attempt, -1 if none is known.
    ``function``    for each call: an index into ``functions``, the names of functions and methods. If
                    ``.options(name=...)`` gave the calls of a function a few names, each has an entry: ``f "name"``.
    ``frame``       for each row: the row of the execution or root span whose code it is part of; for what a replica of
                    Ray Serve does for a request, that of its span. A driver without a
                    root span has a frame without a row: such frames are numbered from ``len(table)``, one for each
                    process.
    ``waits_recorded``  for each Resource of the table: whether its process recorded its waits.
    ``internal``    whether Ray's internal tasks and actors make spans; None if that is not recorded.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.places = [_place(site) for site in table.sites]
        by_name = [role_of(name) for name in table.names]
        self.role = bytearray(np.array(by_name, np.uint8)[as_numpy(table.name)])
        some = any(role in WAITS for role in by_name)
        self.waits_recorded = [are_waits_recorded(each, some=some) for each in table.resources]
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
        self._attempts: dict[int, list[int]] = {}
        self._tasks = _Tasks(table)
        self.call_of = self._join()
        self._group_by_name()
        self._producers: dict[bool, Any] = {}
        self._puts: dict[str, int] | None = None
        self._extent: dict[int, tuple[int, int]] = {}
        self._last_seen: dict[int, int] = {}
        self._resource_of_extent: dict[int, int] = {}
        self.frame = self._frames()

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

    def retried(self) -> list[list[int]]:
        """The rows of the attempts of each call that has several."""
        return [attempts for _, attempts in sorted(self._attempts.items())]

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

    def at(self, fits: Callable[[Place], bool]) -> Any:
        """For each row, as a NumPy column, whether its place fits."""
        return np.array(list(map(fits, self.places)), bool)[as_numpy(self.table.site)]

    def rows_of(self, role: int) -> Any:
        """The rows with this role, as a NumPy column."""
        return np.nonzero(as_numpy(self.role) == role)[0]

    def made(self, row: int) -> int:
        """The submission of the call of an execution; -1 if it is not recorded, and for any other row."""
        call = self.call_of[row]
        return self.submission[call] if call >= 0 else -1

    def caller(self, row: int) -> int:
        """The frame that made the call of an execution; -1 if unknown."""
        submission = self.made(row)
        return self.frame[submission] if submission >= 0 else -1

    def slots_of(self, rows: Any) -> tuple[int, bool]:
        """How many of these executions may run at once, which share slots; and whether that is recorded.

        Spans of the methods of a concurrency group do not say how many it lets run, and those of Ray's own tracing say
        nothing: then it is the most that did.
        """
        table, first = self.table, int(rows[0])
        if not self.place(first).group and not self._is_stock[table.resource[first]]:
            return max(self.places[site].slots for site in np.unique(as_numpy(table.site)[rows]).tolist()), True
        start = as_numpy(table.start)[rows]
        return max(1, most_at_once(start, np.maximum(as_numpy(table.ends)[rows], start + 1))), False

    def submitted_ns(self, call: int) -> int:
        """When Ray received the call; 0 if unknown. Never after the start of the first attempt."""
        return self._submitted[call]

    @cached_property
    def _submitted(self) -> array[int]:
        table = self.table
        start, ends = as_numpy(table.start), as_numpy(table.ends)
        submission, first = as_numpy(self.submission), as_numpy(self.first)
        begun = np.where(first >= 0, start[first], 0)
        end = ends[submission]
        # An execution may start before `.remote()` has returned.
        called = np.where(begun != 0, np.maximum(start[submission], np.minimum(end, begun)), end)
        recorded = np.where(first >= 0, as_numpy(table.submitted)[first], 0)
        return as_array(np.where(submission >= 0, called, recorded), "q")

    def submitted_at(self) -> Any:
        """:meth:`submitted_ns` of every call, as a NumPy column."""
        return as_numpy(self._submitted)

    def queued(self) -> Any:
        """For each call, as a NumPy column, the time from its submission to the start of its first attempt; -1 if
        either is unknown. It includes waiting for arguments, for the actor and for a worker.
        """
        submitted, first = self.submitted_at(), as_numpy(self.first)
        waited = np.maximum(as_numpy(self.table.start)[first] - submitted, 0)
        return np.where((first >= 0) & (submitted != 0), waited, -1)

    def call_of_caller(self, row: int) -> int:
        """The call whose task submitted the call of a row; -1 if that is unknown."""
        task = self._tasks.caller(row)
        return int(self._call_of_task[task]) if task >= 0 else -1

    def is_generator(self, row: int) -> bool:
        """Whether an execution is of a generator, whose items are available before it ends."""
        return self.table.attribute(row, names.RAY_GENERATOR_ITEMS) is not None

    # --- objects --------------------------------------------------------------------------------------------------

    def producers(self, lists: IdLists) -> Any:
        """For each id in ``lists``, which are of this table, the call that creates the object; -1 if unknown."""
        is_ready = lists is self.table.ready
        if is_ready not in self._producers:
            self._producers[is_ready] = self._find_producers(lists)
        return self._producers[is_ready]

    def made_by(self, row: int, lists: IdLists | None = None) -> list[tuple[str, int]]:
        """The object ids in the list of a row, each with the call that creates it. Default: ``table.objects``."""
        lists = self.table.objects if lists is None else lists
        there = lists.range_of(row)
        calls = self.producers(lists)[there.start : there.stop].tolist()
        return list(zip(lists.texts.between(there.start, there.stop), calls, strict=True))

    def is_known(self, object_id: str, call: int) -> bool:
        """Whether it is recorded when an object of ``call`` was there. From ``ray.put`` it was before its id was."""
        return is_put(object_id) or (call >= 0 and self.execution[call] >= 0)

    def put_of(self, object_id: str) -> int:
        """The row of the ``ray.put`` that stored the object, -1 if unknown."""
        if self._puts is None:
            self._puts = {each: row for row, ids in self.table.objects.items() if self.role[row] == PUT for each in ids}
        return self._puts.get(object_id, -1)

    def objects_of(self, row: int) -> tuple[str, ...]:
        """The object ids of a submission's arguments, or of what a wait waits for."""
        return self.table.objects.get(row, ())

    def is_cut(self, row: int) -> bool:
        """Whether a wait waits for more objects than its span lists, or a submission has more of them as arguments."""
        key = names.RAY_ARGUMENT_COUNT if self.role[row] == SUBMISSION else names.RAY_OBJECT_COUNT
        many = self.table.attribute(row, key)
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

    def last_seen(self, frame: int) -> int:
        """Until when a frame is known to have gone on: its end, or without a row the end of its last own span."""
        return self.table.end_or_now(frame) if frame < len(self.table) else self._last_seen[frame]

    def members(self, frame: int) -> Sequence[int]:
        """The rows of the submissions, waits and puts that a frame's code made, by start."""
        frames, rows = self._members
        first = bisect_left(frames, frame)
        return rows[first : bisect_right(frames, frame, first)]

    @cached_property
    def _members(self) -> tuple[memoryview, memoryview]:
        """The rows of all submissions, waits and puts, by frame, and before them the frame of each."""
        rows = np.nonzero(np.isin(as_numpy(self.role), _MADE))[0]
        frames = as_numpy(self.frame)[rows]
        order = np.argsort(frames, kind="stable")
        return memoryview(as_array(frames[order], "i")), memoryview(as_array(rows[order], "i"))

    def frame_of(self, row: int) -> int:
        """The frame that a row is part of; a frame is part of itself."""
        return self.frame[row] if row < len(self.table) else row

    def own_waits(self, frame: int) -> list[int]:
        """The rows of the waits of a frame's own code, by start.

        Others are in another process, in which a call that makes no span has made them, or in threads of a driver whose
        own code did not wait then.
        """
        own, resource = self.resource_of(frame), self.table.resource
        return [
            row
            for row in self.members(frame)
            if self.role[row] in WAITS and resource[row] == own and not self.is_aside(row)
        ]

    def is_aside(self, row: int) -> bool:
        """Whether a span is in a thread of a driver whose own code is not known to have waited for any thread then."""
        site = self.table.sites[self.table.site[row]]
        return site.get(names.THREAD_ID) is not None and site.get(names.RAY_DRIVER_WAITED) is not True

    @cached_property
    def with_futures(self) -> frozenset[int]:
        """The frames that made futures of objects: when they waited for these is not recorded."""
        return self._frames_of(as_numpy(self.role) == FUTURE)

    @cached_property
    def with_threads(self) -> frozenset[int]:
        """The drivers that waited in several threads: when these waited for each other is not recorded."""
        has_thread = self.table.is_at(lambda site: names.THREAD_ID in site)
        return self._frames_of(np.isin(as_numpy(self.role), WAITS) & has_thread)

    def _frames_of(self, rows: Any) -> frozenset[int]:
        return frozenset(distinct(as_numpy(self.frame)[rows]).tolist())

    def frames_with_members(self, least: int) -> list[int]:
        """The frames that made calls, waited or stored objects, at least ``least`` times in all; by the first time."""
        found, first, many = np.unique(as_numpy(self._members[0]), return_index=True, return_counts=True)
        busy = many >= least
        rows = as_numpy(self._members[1])[first[busy]]
        return cast("list[int]", found[busy][np.argsort(rows)].tolist())

    def frames(self) -> list[int]:
        """All frames: executions, root spans, and frames without a row; not the parts of requests to Ray Serve."""
        frame = self.frame
        is_part = self.is_in_replica & (as_numpy(self.table.parent) >= 0)
        own = np.nonzero((as_numpy(frame) == np.arange(len(frame))) & ~is_part)[0]
        return [*own.tolist(), *self._extent]

    def drivers(self) -> list[int]:
        """The frames of drivers: their own spans if there are any, else the frames without a row that may be of one."""
        return self._drivers

    @cached_property
    def _drivers(self) -> list[int]:
        return self.rows_of(DRIVER).tolist() or [frame for frame in self._extent if not self._is_worker(frame)]

    def _is_worker(self, frame: int) -> bool:
        return self.table.resources[self.resource_of(frame)].get(names.RESOURCE_PROCESS_TYPE) == "worker"

    def is_cut_off(self, root: int) -> bool:
        """Whether a run that ends with this frame may have begun before its spans, and may go on after them.

        A trace whose first span was read is whole, such as that of a request.
        """
        return root >= len(self.table) or self.role[root] == EXECUTION

    def frame_name(self, frame: int) -> str:
        """The function of a frame, or the name of its driver or root span."""
        if frame < len(self.table):
            name = self.function_of(frame)
            if self.is_in_replica[frame]:
                return name.removesuffix(_REPLICA)
            return name.removesuffix(_DRIVER_SUFFIX) if self.role[frame] == DRIVER else name
        return "driver"

    # --- what was recorded ----------------------------------------------------------------------------------------

    def records_waits(self, frame: int) -> bool:
        """Whether the process of a frame recorded its waits. If not, it may have waited at any time."""
        return self.waits_recorded[self.resource_of(frame)]

    def resources_of(self, frames: Any) -> Any:
        """:meth:`resource_of` of many frames, as NumPy columns."""
        last = max(self._resource_of_extent, default=-1)
        alone = [self._resource_of_extent[frame] for frame in range(len(self.table), last + 1)]
        return np.concatenate([as_numpy(self.table.resource), np.array(alone, np.uint32)])[frames]

    def resource_of(self, frame: int) -> int:
        """The index in the table of the Resource of a frame's process."""
        return self.table.resource[frame] if frame < len(self.table) else self._resource_of_extent[frame]

    @cached_property
    def is_selection(self) -> bool:
        """Whether ``RAY_TRACING_INCLUDE`` or ``RAY_TRACING_EXCLUDE`` leaves out calls, which may have kept others."""
        recorded = (resource.get(names.RESOURCE_PARTS) for resource in self.table.resources)
        return any("selected" in parts.split(",") for parts in recorded if isinstance(parts, str))

    @cached_property
    def waiting(self) -> str:
        """``EVERYWHERE``, ``PARTLY`` or ``NOWHERE``: where waits were recorded, of the processes that ran a driver or
        call, or else a root span.
        """
        ran = {self.resource_of(frame) for frame in self.drivers()}
        ran.update(distinct(as_numpy(self.table.resource)[as_numpy(self.role) == EXECUTION]).tolist())
        if not ran:  # requests of Ray Serve alone
            ran = {self.resource_of(frame) for frame in self.frames()}
        recorded = [self.waits_recorded[resource] for resource in ran]
        return NOWHERE if not any(recorded) else EVERYWHERE if all(recorded) else PARTLY

    @cached_property
    def left_out(self) -> int:
        """How many calls made no spans because of a rate limit, as far as spans report it."""
        recorded = [
            number if isinstance(number := each.get(names.RAY_LEFT_OUT), int) else 0 for each in self.table.sites
        ]
        many = np.bincount(as_numpy(self.table.site), minlength=len(recorded)).tolist()
        return sum(number * rows for number, rows in zip(recorded, many, strict=True))

    @cached_property
    def unsampled(self) -> int:
        """How many spans are of traces that were not sampled: their other spans are missing."""
        return int(np.count_nonzero(self.table.is_at(lambda site: names.RAY_SAMPLING_REASON in site)))

    # --- libraries of Ray -----------------------------------------------------------------------------------------

    def library_before(self, frame: int, time: int) -> tuple[int, int] | None:
        """The last run of a library of Ray in the code of a frame before ``time``: its start, and its end until
        then.
        """
        return max(
            ((begin, min(end, time)) for begin, end in self._libraries.get(frame, ()) if begin < time), default=None
        )

    def training_of(self, frame: int) -> Sequence[tuple[int, int]]:
        """The start and end of each run of Ray Train that the code of a frame has started, by start."""
        return self._training.get(frame, ())

    @cached_property
    def _libraries(self) -> dict[int, list[tuple[int, int]]]:
        return self._runs_of(_LIBRARY_SUFFIXES)

    @cached_property
    def _training(self) -> dict[int, list[tuple[int, int]]]:
        return self._runs_of(_TRAIN_SUFFIX)

    def _runs_of(self, suffixes: str | tuple[str, ...]) -> dict[int, list[tuple[int, int]]]:
        """The times of runs of libraries, by start, by the frame that waited for them."""
        table, found = self.table, dict[int, list[tuple[int, int]]]()
        for row in np.nonzero(table.is_named(lambda name: name.endswith(suffixes)))[0].tolist():
            if not self.is_aside(row):
                found.setdefault(self.frame[row], []).append((table.start[row], table.end_or_now(row)))
        return found

    def loops_of(self, frame: int) -> Sequence[int]:
        """The rows of the training loops that the code of a frame has started."""
        return self._loops.get(frame, ())

    @cached_property
    def _loops(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row in np.nonzero(self.table.is_named(lambda name: name.endswith(_LOOP_SUFFIX)))[0].tolist():
            above = self.table.parent[row]
            if above >= 0:
                found.setdefault(self.frame[above], []).append(row)
        return found

    def started_loop(self, row: int) -> int | None:
        """The last execution in its worker before a training loop; None for any other execution."""
        table = self.table
        if not table.name_of(row).endswith(_LOOP_SUFFIX):
            return None
        here = [
            each
            for each in np.nonzero(as_numpy(table.resource) == table.resource[row])[0].tolist()
            if self.role[each] == EXECUTION and each != row and table.end_or_now(each) <= table.start[row]
        ]
        return max(here, key=table.end_or_now, default=None)

    # --- making ---------------------------------------------------------------------------------------------------

    def _join(self) -> array[int]:
        table = self.table
        role, task, parent = as_numpy(self.role), self._tasks.of_row, as_numpy(table.parent)
        call_of = np.full(len(table), -1, np.int32)
        submitted, ran = np.nonzero(role == SUBMISSION)[0], np.nonzero(role == EXECUTION)[0]
        call_of[submitted] = np.arange(len(submitted))
        is_known = (task[submitted] >= 0) & ~np.array(self._is_stock, bool)[as_numpy(table.resource)[submitted]]
        with_task = [submitted[is_known], ran[task[ran] >= 0]]
        above = parent[ran]
        is_below = (above >= 0) & (role[above] == SUBMISSION)
        call_of[ran[is_below]] = call_of[above[is_below]]
        alone = self._join_by_task(call_of, ran, is_below, with_task[0])
        # A call without a submission gets its name from its first execution.
        made_by = np.concatenate([submitted, alone])
        self.submission = as_array(np.concatenate([submitted, np.full(len(alone), -1)]), "i")
        self.function = as_array(as_numpy(self._function_of_name)[as_numpy(table.name)[made_by]], "I")
        last, first = np.full(len(made_by), -1), np.full(len(made_by), len(table))
        np.maximum.at(last, call_of[ran], ran)
        np.minimum.at(first, call_of[ran], ran)
        self.execution, self.first = as_array(last, "i"), as_array(np.where(last < 0, -1, first), "i")
        again = ran[(last != first)[call_of[ran]]]
        for row, call in zip(again.tolist(), call_of[again].tolist(), strict=True):
            self._attempts.setdefault(call, []).append(row)
        # An execution takes precedence over a submission, and a later one over an earlier one.
        self._call_of_task = np.full(len(self._tasks), -1, np.int32)
        for rows in with_task:
            latest = np.full(len(self._tasks), -1)
            np.maximum.at(latest, task[rows], rows)
            self._call_of_task = np.where(latest >= 0, call_of[latest], self._call_of_task)
        return as_array(call_of, "i")

    def _join_by_task(self, call_of: Any, ran: Any, is_below: Any, submitted: Any) -> Any:
        """Set the calls of executions that are not children of their submission.

        ``submitted``: the rows of submissions whose task is known. Returns the first row of each call without a
        submission.
        """
        task = self._tasks.of_row
        alone: list[int] = []
        if is_below.all():
            return np.array(alone, np.int64)
        # The last place is for rows without a task, whose number is -1.
        wanted = np.zeros(len(self._tasks) + 1, bool)
        wanted[task[ran[~is_below]]] = True
        wanted[-1] = False
        of_task = {int(task[row]): int(call_of[row]) for row in submitted[wanted[task[submitted]]]}
        rows = ran[~is_below | wanted[task[ran]]]
        count = int(np.count_nonzero(as_numpy(self.role) == SUBMISSION))
        found = call_of[rows].tolist()
        for place, (row, its) in enumerate(zip(rows.tolist(), task[rows].tolist(), strict=True)):
            if found[place] < 0:
                found[place] = of_task.get(its, -1)
            if found[place] < 0:
                found[place] = count + len(alone)
                alone.append(row)
            if its >= 0:
                of_task[its] = found[place]
        call_of[rows] = found
        return np.array(alone, np.int64)

    def _group_by_name(self) -> None:
        """Group the named calls of a function by their names, if the names are few: ``eval``, but not ``trial-17``."""
        by_function: dict[int, dict[int, str]] = {}
        for row, (name,) in self.table.named.items():
            call = self.call_of[row]
            own = self.functions[self.function[call]] if call >= 0 else ""
            # An actor's creation has the name of the actor.
            if own and not is_creation(own) and name not in (own, own.rpartition(".")[2]):
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

    def _find_producers(self, lists: IdLists) -> Any:
        objects = lists.texts
        found = np.full(len(objects), -1, np.int32)
        which, digits = objects.matrix(_OBJECT_DIGITS)
        is_result = (digits < 128).all(axis=1) & (_indexes(digits[:, _TASK_DIGITS:]) < _FIRST_PUT)
        place = self.table.ids.find(digits[is_result, :_TASK_DIGITS])
        which, place = which[is_result][place >= 0], place[place >= 0]
        task = self._tasks.of_ids(place, which, lists)
        found[which[task >= 0]] = self._call_of_task[task[task >= 0]]
        return found

    @cached_property
    def is_in_replica(self) -> Any:
        """Which rows are requests in replicas of Ray Serve, as a NumPy column. Each is a frame: a method's code."""
        # The start of a replica has the same suffix, and another kind.
        return self.table.is_named(lambda name: name.endswith(_REPLICA)) & (as_numpy(self.table.kind) == CONSUMER)

    def _is_routed(self) -> Any:
        """Which rows are requests below the choice of their replica, which had ended before they began."""
        table, parent = self.table, as_numpy(self.table.parent)
        is_route = table.is_named(lambda name: name.endswith(_ROUTE))
        return (as_numpy(table.kind) == SERVER) & table.is_ours() & (parent >= 0) & is_route[parent]

    def _frames(self) -> array[int]:
        table, role, parent = self.table, as_numpy(self.role), as_numpy(self.table.parent)
        is_begin = np.isin(role, _FRAMES) | self.is_in_replica | self._is_routed()
        ends_here = is_begin | ((parent < 0) & ~np.isin(role, _MADE))
        top = tops(np.where(ends_here, -1, parent))
        frame = top.astype(np.int32)
        # A row below no frame belongs to a frame without a row.
        rows = np.nonzero(~ends_here[top])[0]
        resources, first, which = np.unique(as_numpy(table.resource)[top[rows]], return_index=True, return_inverse=True)
        number = np.empty(len(first), np.int64)
        number[np.argsort(first)] = np.arange(len(first)) + len(table)
        frame[rows] = number[which]
        roots = rows[top[rows] == rows]
        own = frame[roots] - len(table)
        begin, end = np.full(len(first), np.iinfo(np.int64).max), np.zeros(len(first), np.int64)
        np.minimum.at(begin, own, as_numpy(table.start)[roots])
        np.maximum.at(end, own, as_numpy(table.ends)[roots])
        last = int(as_numpy(table.ends).max(initial=0))
        for of, resource in sorted(zip(number.tolist(), resources.tolist(), strict=True)):
            seen = int(end[of - len(table)])
            self._resource_of_extent[of] = resource
            self._last_seen[of] = seen
            # Ray ends what a driver has started when the driver ends: so that has gone on as long.
            self._extent[of] = int(begin[of - len(table)]), seen if self._is_worker(of) else last
        return as_array(frame, "i")


class _Tasks:
    """The tasks of a table, numbered. Clusters give their tasks the same ids, so a task is an id in one session.

    ``of_row``  for each row the number of its task, -1 for none.
    """

    def __init__(self, table: Table) -> None:
        self._table, self._count = table, len(table.ids)
        session = by_row(table)[1]
        task = as_numpy(table.task)
        self.of_row = np.where(task == NONE, -1, task.astype(np.int32))
        self._keys: Any = None
        if len(session) and (session != session[0]).any():
            # Few ids are of several sessions, but a folder may have many sessions.
            self._session = session
            keys = self._session * self._count + task
            self._keys = np.unique(keys[self.of_row >= 0])
            self.of_row = np.where(self.of_row >= 0, np.searchsorted(self._keys, keys), -1)

    def __len__(self) -> int:
        return self._count if self._keys is None else len(self._keys)

    def caller(self, row: int) -> int:
        """The number of the task that submitted the call of a row; -1 if that is unknown or has no row."""
        task = self._table.caller[row]
        if task == NONE or self._keys is None:
            return -1 if task == NONE else task
        return int(self._numbers(np.array([self._session[row] * self._count + task]))[0])

    def of_ids(self, ids: Any, texts: Any, lists: IdLists) -> Any:
        """The numbers of tasks, given the indexes of their ids in the table, and where the lists of rows name them."""
        if self._keys is None:
            return ids
        rows, places = lists.flat()
        session = np.zeros(len(lists.texts), np.int64)
        session[places] = self._session[rows]
        return self._numbers(session[texts] * self._count + ids)

    def _numbers(self, keys: Any) -> Any:
        if not len(self._keys):
            return np.full(len(keys), -1)
        found = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[found] == keys, found, -1)


_MADE = (SUBMISSION, GET, WAIT, PUT, FUTURE)
_FRAMES = (EXECUTION, DRIVER)


def is_put(object_id: str) -> bool:
    """Whether ``ray.put`` created the object, rather than a task."""
    return _index(object_id) >= _FIRST_PUT


def item_number(object_id: str) -> int:
    """The number of a generator's item, from 1."""
    return _index(object_id) - 1


def is_item(object_id: str) -> bool:
    """Whether it may be a generator's item, available before the task ends: any result but the first."""
    return 1 < _index(object_id) < _FIRST_PUT


def _indexes(digits: Any) -> Any:
    """As :func:`_index`, for many ids: each row has the last digits of an id. 0 if they are not hexadecimal."""
    nibbles = np.full(256, -1, np.int64)
    nibbles[np.frombuffer(b"0123456789abcdef", np.uint8)] = nibbles[np.frombuffer(b"0123456789ABCDEF", np.uint8)] = (
        range(16)
    )
    found = nibbles[digits]
    octets = found[:, ::2] << 4 | found[:, 1::2]
    return np.where((found < 0).any(axis=1), 0, octets @ (1 << 8 * np.arange(octets.shape[1])))


def _index(object_id: str) -> int:
    try:
        return int.from_bytes(bytes.fromhex(object_id[_TASK_DIGITS:]), "little")
    except ValueError:
        return 0


def role_of(name: str) -> int:
    if name.endswith(_EXECUTION_SUFFIXES):
        return EXECUTION
    if name.endswith(_SUBMISSION_SUFFIX):
        return SUBMISSION
    if name.endswith(_DRIVER_SUFFIX):
        return DRIVER
    return _WAITING.get(name, OTHER)


_SUBMISSION_SUFFIX, _EXECUTION_SUFFIX = names.submission_name(""), names.execution_name("")
_LOOP_SUFFIX = names.run_name("", names.TRAIN_WORKER)
_EXECUTION_SUFFIXES = (
    _EXECUTION_SUFFIX,
    *(names.run_name("", suffix) for library in LIBRARIES for suffix in library.loops),
)
"""Also those of the training loops of Ray Train, which run code of the program in a worker, without a submission."""
_TRAIN_SUFFIX = names.run_name("", names.TRAIN_RUN)
_LIBRARY_SUFFIXES = tuple(names.run_name("", suffix) for library in LIBRARIES for suffix in library.runs)
"""Those of what runs in the process that asked for it, and waits for internal calls of a library."""
_ROUTE, _REPLICA = f" {names.SERVE_ROUTE}", f" {names.SERVE_REPLICA}"
_DRIVER_SUFFIX = names.driver_name("")
_WAITING = {
    "ray.get": GET,
    names.AWAIT: GET,
    "ray.wait": WAIT,
    names.PLACEMENT_GROUP_WAIT: WAIT,
    "ray.put": PUT,
    names.FUTURE: FUTURE,
}


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


def are_waits_recorded(resource: Mapping[str, Any], *, some: bool) -> bool:
    """Whether the process of a Resource recorded its waits.

    Where a Resource does not say it, as with Ray's own tracing, its process is assumed to have if ``some`` did.
    """
    parts = resource.get(names.RESOURCE_PARTS)
    return {"get", "wait"} <= set(parts.split(",")) if isinstance(parts, str) else some


def _internal_recorded(table: Table) -> bool | None:
    recorded = [parts for each in table.resources if isinstance(parts := each.get(names.RESOURCE_PARTS), str)]
    return any("internal" in parts.split(",") for parts in recorded) if recorded else None


def _stock(table: Table) -> list[bool]:
    """For each resource whether Ray's own tracing made its spans, as far as this can be determined."""
    return [resource.get(names.DISTRO_NAME) != names.SCOPE for resource in table.resources]
