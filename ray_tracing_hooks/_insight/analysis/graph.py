"""The call graph: functions and methods, the calls between them, and the data passed from one to another."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.model.calls import EXECUTION, SUBMISSION, WAITS, Calls, is_put
from ray_tracing_hooks._insight.model.span import CONSUMER, PRODUCER, SERVER
from ray_tracing_hooks._insight.model.table import Table

MOST_FUNCTIONS = 5_000
BEYOND = "(other functions)"

DATA, WAITED, RETRY = range(3)

Kind = Literal["driver", "task", "method", "span"]


@dataclass(slots=True)
class Times:
    """Durations of executions, in nanoseconds."""

    values: list[int] = field(default_factory=list)
    errors: int = 0

    def figures(self) -> dict[str, int]:
        """Number, errors, sum, and by nearest rank the median, 95th percentile and maximum"""
        self.values.sort()
        return {
            "count": len(self.values),
            "errors": self.errors,
            "total": sum(self.values),
            "p50": percentile(self.values, 0.5),
            "p95": percentile(self.values, 0.95),
            "max": self.values[-1] if self.values else 0,
        }


@dataclass(slots=True)
class Function:
    """A function, a method of an actor class, a driver, or another span that starts work, such as a root span."""

    label: str
    kind: Kind
    name: int
    """The index of the name of one of its spans."""
    actor: str = ""
    """The class of the actor, for a method."""
    method: str = ""
    times: Times = field(default_factory=Times)
    queue: list[int] = field(default_factory=list)
    actors: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Data:
    """Objects that one function returned or stored, and that were arguments of another."""

    objects: set[str] = field(default_factory=set)
    readers: int = 0
    """How often one of them was an argument."""


class Graph(NamedTuple):
    """Functions, and for each row of the table the index of the function that the span belongs to, or -1."""

    functions: list[Function]
    of: array[int]
    calls: dict[tuple[int, int], Times]
    """By caller and called function; a caller is the function in which the call was made."""
    data: dict[tuple[int, int], Data]
    """By the function that the objects come from and the function that they go to."""


def graph(joined: Calls, ends: array[int]) -> Graph:
    """The call graph of a table, given the ends of its spans."""
    table = joined.table
    found = _Functions(joined)
    of = _belonging(table, found)
    calls: dict[tuple[int, int], Times] = {}
    start, kinds, parents = table.start, table.kind, table.parent
    for row, function in enumerate(of):
        kind, role = kinds[row], joined.role[row]
        if role == EXECUTION:
            caller = caller_of(joined, of, row)
        elif kind == PRODUCER or function < 0 or not (kind in (CONSUMER, SERVER) or parents[row] < 0):
            continue
        else:
            caller = of[parents[row]] if parents[row] >= 0 else -1
        each = found.functions[function]
        for times in (each.times, calls.setdefault((caller, function), Times()) if caller >= 0 else None):
            if times is not None:
                times.errors += table.failed(row)
                times.values.append(ends[row] - start[row])
        if role == EXECUTION and (actor := joined.place(row).actor):
            each.actors.add(actor)
    for call in range(len(joined)):
        row = max(joined.submission[call], joined.execution[call])
        if (queued := joined.queued_ns(call)) is not None:
            found.functions[of[row]].queue.append(queued)
    return Graph(found.functions, of, calls, _data(joined, of))


def caller_of(joined: Calls, of: Sequence[int], row: int) -> int:
    """The function that made the call of an execution, -1 if unknown."""
    submitted = joined.submission[joined.call_of[row]]
    above = joined.table.parent[submitted] if submitted >= 0 else joined.table.parent[row]
    return of[above] if above >= 0 else -1


def edges(joined: Calls) -> Iterator[tuple[int, int, int]]:
    """The edges between spans: the row each comes from, the row it goes to, and ``DATA``, ``WAITED`` or ``RETRY``.

    An object whose source and destination are known makes an edge: from an execution or ``ray.put``, or a submission
    without an execution; to the execution, or the submission, that has it as an argument (``DATA``), or to a
    ``ray.get`` or ``ray.wait`` (``WAITED``). Each pair of rows has at most one. ``RETRY`` connects each attempt to the
    next.
    """
    table = joined.table
    for row in sorted(table.objects):
        role = joined.role[row]
        if role not in (SUBMISSION, *WAITS):
            continue
        to, kind = row, WAITED
        if role == SUBMISSION:
            execution = joined.execution[joined.call_of[row]]
            to, kind = execution if execution >= 0 else row, DATA
        for source in dict.fromkeys(source_of(joined, each) for each in table.objects[row]):
            if source >= 0 and source != to:
                yield source, to, kind
    for call in range(len(joined)):
        attempts = joined.attempts(call)
        for before, after in pairwise(attempts):
            yield before, after, RETRY


def source_of(joined: Calls, object_id: str) -> int:
    """The row that an object comes from, -1 if unknown."""
    if is_put(object_id):
        return joined.put_of(object_id)
    call = joined.producer(object_id)
    return -1 if call < 0 else joined.execution[call] if joined.execution[call] >= 0 else joined.submission[call]


def _data(joined: Calls, of: Sequence[int]) -> dict[tuple[int, int], Data]:
    table = joined.table
    found: dict[tuple[int, int], Data] = {}
    for row in table.objects:
        if joined.role[row] != SUBMISSION:
            continue
        for each in table.objects[row]:
            source = source_of(joined, each)
            if source >= 0 and of[source] >= 0 and of[row] >= 0:
                data = found.setdefault((of[source], of[row]), Data())
                data.objects.add(each)
                data.readers += 1
    return found


class _Functions:
    """The functions so far, by the names and sites of their spans."""

    def __init__(self, joined: Calls) -> None:
        self.functions: list[Function] = []
        self._joined, self._table = joined, joined.table
        self._by_label: dict[str, int] = {}
        self._by_site: dict[tuple[int, int, int], int] = {}

    def of(self, row: int) -> int:
        table = self._table
        call = self._joined.call_of[row]
        key = table.name[row], table.site[row], self._joined.function[call] if call >= 0 else -1
        known = self._by_site.get(key)
        if known is None:
            known = self._by_site[key] = self._make(row)
        return known

    def _make(self, row: int) -> int:
        table = self._table
        name = table.name_of(row)
        called = self._joined.role[row] in (SUBMISSION, EXECUTION)
        site = table.sites[table.site[row]]
        label = self._joined.function_of(row) if called else name
        index = self._by_label.get(label, -1)
        if index >= 0:
            return index
        if len(self.functions) >= MOST_FUNCTIONS:
            label, called, site = BEYOND, False, {}
            index = self._by_label.get(label, -1)
            if index >= 0:
                return index
        made = Function(label, "span", table.name[row])
        if called and site.get(names.RAY_ACTOR_METHOD):
            made.kind = "method"
            method = str(site[names.RAY_ACTOR_METHOD])
            given = f' "{self._joined.name_of(row)}"'
            made.method = method + given if label.endswith(given) else method
            made.actor = label.removesuffix(f".{made.method}") or str(site.get(names.RAY_ACTOR_CLASS, ""))
        elif called:
            made.kind = "task"
        elif name.endswith(names.driver_name("")):
            made.kind = "driver"
            made.label = name.removesuffix(names.driver_name("")) or name
        self._by_label[label] = len(self.functions)
        self.functions.append(made)
        return len(self.functions) - 1


def _belonging(table: Table, found: _Functions) -> array[int]:
    """For each row the function that its span belongs to: its own if it is a call or a root span, else its parent's."""
    unknown = -2
    of = array("q", [unknown]) * len(table)
    kinds, parents = table.kind, table.parent
    for row in range(len(table)):
        pending = []
        here = row
        while of[here] == unknown:
            pending.append(here)
            if parents[here] < 0 or kinds[here] in (PRODUCER, CONSUMER, SERVER):
                of[here] = found.of(here)
                break
            here = parents[here]
        function = of[here]
        for each in pending:
            of[each] = function
    return of


def median_and_most(values: Iterable[int]) -> tuple[int | None, int | None]:
    """The median and the maximum; None if there are no values."""
    ordered = sorted(values)
    return (percentile(ordered, 0.5), ordered[-1]) if ordered else (None, None)
