"""The call graph: functions and methods, the calls between them, and the data passed from one to another."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.model.calls import EXECUTION, SUBMISSION, WAITS, Calls, is_put
from ray_tracing_hooks._insight.model.grouped import distinct, split, tops, unique_columns
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.serve_spans import of_methods, without_suffix
from ray_tracing_hooks._insight.model.span import CLIENT, CONSUMER, PRODUCER, SERVER
from ray_tracing_hooks._insight.model.table import Table

MOST_FUNCTIONS = 5_000
BEYOND = "(other functions)"

DATA, WAITED, RETRY = range(3)

Kind = Literal["driver", "task", "method", "span"]


@dataclass(slots=True)
class ExecutionTimes:
    """Durations of executions, in nanoseconds."""

    values: array[int] = field(default_factory=lambda: array("q"))
    errors: int = 0

    def figures(self) -> dict[str, int]:
        """Number, errors, sum, median, 95th percentile and maximum."""
        self.values = as_array(np.sort(as_numpy(self.values)), "q")
        return {
            "count": len(self.values),
            "errors": self.errors,
            "total": sum(self.values),
            "p50": percentile(self.values, 0.5),
            "p95": percentile(self.values, 0.95),
            "max": self.values[-1] if self.values else 0,
        }


@dataclass(slots=True)
class GraphNode:
    """A function, a method of an actor class or a deployment, a driver, or another span that starts work.

    Root spans do, and spans of requests that are served.
    """

    label: str
    kind: Kind
    name: int
    """The index of the name of one of its spans, of an execution if there is one."""
    actor: str = ""
    """For a method the class of the actor, or the deployment."""
    method: str = ""
    times: ExecutionTimes = field(default_factory=ExecutionTimes)
    queue: array[int] = field(default_factory=lambda: array("q"))
    actors: set[str] = field(default_factory=set)
    """For a method the ids of the actors or replicas that ran it."""


@dataclass(slots=True)
class Data:
    """Objects that one function returned or stored, and that were arguments of another."""

    objects: set[str] = field(default_factory=set)
    readers: int = 0
    """How often one of them was an argument."""


class Graph(NamedTuple):
    """Functions, and for each row of the table the index of the function that the span belongs to, or -1."""

    functions: list[GraphNode]
    of: array[int]
    calls: dict[tuple[int, int], ExecutionTimes]
    """By caller and called function; a caller is the function in which the call was made."""
    data: dict[tuple[int, int], Data]
    """By the function that the objects come from and the function that they go to."""


def graph(calls: Calls, ends: array[int], is_failed: Any) -> Graph:
    """The call graph of a table, given the ends of its spans and, as a NumPy column, which of them failed."""
    table = calls.table
    of_deployments = of_methods(table)
    found = _Functions(calls, of_deployments)
    kind, role, parent, call_of = map(as_numpy, (table.kind, calls.role, table.parent, calls.call_of))
    is_call = (kind == PRODUCER) & ((role == SUBMISSION) | of_deployments)
    is_first = is_call | _begins(table)
    belonging = _belonging(is_first, parent, found)
    of = as_numpy(belonging).astype(np.int64)
    is_run = role == EXECUTION
    rows = np.nonzero(is_run | (is_first & ~is_call))[0]
    above = parent[rows]
    is_called = (above >= 0) & (kind[rows] == CONSUMER) & is_call[above]
    above = np.where(is_called, parent[above], above)
    submission = np.full(len(rows), -1)
    submission[is_run[rows]] = as_numpy(calls.submission)[call_of[rows[is_run[rows]]]]
    above = np.where(submission >= 0, parent[submission], above)
    caller = np.where(above >= 0, of[above], -1)
    function = of[rows]
    for each, first in zip(*(column.tolist() for column in np.unique(function, return_index=True)), strict=True):
        found.functions[each].name = table.name[rows[first]]
    took = as_numpy(ends)[rows] - as_numpy(table.start)[rows]
    failed = is_failed[rows]
    for each, times in _times(function, took, failed):
        found.functions[each].times = times
    size = len(found.functions)
    called = caller >= 0
    pairs = caller[called] * size + function[called]
    between = {divmod(pair, size): times for pair, times in _times(pairs, took[called], failed[called])}
    ran = rows[is_run[rows] | of_deployments[rows]]
    actor_of = [
        str(site.get(names.RAY_SERVE_REPLICA_ID) or place.actor)
        for site, place in zip(table.sites, calls.places, strict=True)
    ]
    for pair in distinct(of[ran] * max(1, len(actor_of)) + as_numpy(table.site)[ran]).tolist():
        each, site = divmod(pair, max(1, len(actor_of)))
        if actor_of[site]:
            found.functions[each].actors.add(actor_of[site])
    queued = calls.queued()
    waited = np.nonzero(queued >= 0)[0]
    seen = np.maximum(as_numpy(calls.submission), as_numpy(calls.execution))[waited]
    for each, own in enumerate(split(of[seen], size, queued[waited])[0] if size else ()):
        found.functions[each].queue = as_array(own, "q")
    return Graph(found.functions, belonging, between, _data(calls, belonging))


def _times(keys: Any, took: Any, failed: Any) -> Iterator[tuple[int, ExecutionTimes]]:
    """The times of the rows of each key; keys are in the order of their first rows."""
    found, first, number = np.unique(keys, return_index=True, return_inverse=True)
    errors = np.bincount(number, failed, len(found)).astype(np.int64).tolist()
    (values,) = split(number, len(found), took)
    for place in np.argsort(first).tolist():
        yield int(found[place]), ExecutionTimes(as_array(values[place], "q"), errors[place])


def caller_of(calls: Calls, of: Sequence[int], row: int) -> int:
    """The function that made the call of an execution, -1 if unknown."""
    submitted = calls.submission[calls.call_of[row]]
    above = calls.table.parent[submitted] if submitted >= 0 else calls.table.parent[row]
    return of[above] if above >= 0 else -1


def edges(calls: Calls) -> tuple[Any, Any, Any]:
    """The edges between spans: the row each comes from, the row it goes to, and ``DATA``, ``WAITED`` or ``RETRY``.

    An object whose source and destination are known makes an edge: from an execution or ``ray.put``, or a submission
    without an execution; to the execution, or the submission, that has it as an argument (``DATA``), or to a
    ``ray.get`` or ``ray.wait`` (``WAITED``). Each pair of rows has at most one. ``RETRY`` connects each attempt to the
    next.
    """
    role, call_of, execution = map(as_numpy, (calls.role, calls.call_of, calls.execution))
    rows, texts = calls.table.objects.flat()
    is_end = np.isin(role[rows], (SUBMISSION, *WAITS))
    rows, source = rows[is_end].astype(np.int64), sources(calls)[texts[is_end]]
    is_data = role[rows] == SUBMISSION
    ran = execution[np.where(is_data, call_of[rows], -1)] if len(execution) else np.full(len(rows), -1)
    to = np.where(is_data & (ran >= 0), ran, rows)
    is_edge = (source >= 0) & (source != to)
    rows, source, to, kind = rows[is_edge], source[is_edge], to[is_edge], np.where(is_data, DATA, WAITED)[is_edge]
    first = np.sort(np.unique(rows * len(role) + source, return_index=True)[1])
    again = np.array([pair for attempts in calls.retried() for pair in pairwise(attempts)], np.int64).reshape(-1, 2)
    return (
        np.concatenate([source[first], again[:, 0]]),
        np.concatenate([to[first], again[:, 1]]),
        np.concatenate([kind[first], np.full(len(again), RETRY)]),
    )


def sources(calls: Calls) -> Any:
    """For each id in the lists of objects, the row that the object comes from, -1 if unknown."""
    objects = calls.table.objects
    call = calls.producers(objects)
    found = np.full(len(call), -1)
    is_made = call >= 0
    execution, submission = (as_numpy(column)[call[is_made]] for column in (calls.execution, calls.submission))
    found[is_made] = np.where(execution >= 0, execution, submission)
    for text in np.nonzero(~is_made)[0].tolist():
        if is_put(object_id := objects.texts[text]):
            found[text] = calls.put_of(object_id)
    return found


def _data(calls: Calls, of: Sequence[int]) -> dict[tuple[int, int], Data]:
    rows, texts = calls.table.objects.flat()
    is_argument = as_numpy(calls.role)[rows] == SUBMISSION
    rows, texts = rows[is_argument], texts[is_argument]
    source = sources(calls)[texts]
    function = as_numpy(of)
    is_known = (source >= 0) & (function[source] >= 0) & (function[rows] >= 0)
    rows, texts, source = rows[is_known], texts[is_known], source[is_known]
    found: dict[tuple[int, int], Data] = {}
    ids = calls.table.objects.texts
    for pair_from, pair_to, text in zip(
        function[source].tolist(), function[rows].tolist(), texts.tolist(), strict=True
    ):
        data = found.setdefault((pair_from, pair_to), Data())
        data.objects.add(ids[text])
        data.readers += 1
    return found


class _Functions:
    """The functions so far, by the names and sites of their spans."""

    def __init__(self, calls: Calls, of_deployments: Any) -> None:
        self.functions: list[GraphNode] = []
        self._calls, self._table, self._of_deployments = calls, calls.table, of_deployments
        self._by_label: dict[str, int] = {}

    def of(self, rows: Any) -> Any:
        """The functions of these rows; new ones are numbered in the order of the rows."""
        table = self._table
        call = as_numpy(self._calls.call_of)[rows]
        function = np.full(len(rows), -1, np.int64)
        function[call >= 0] = as_numpy(self._calls.function)[call[call >= 0]]
        keys = np.stack([as_numpy(table.name)[rows], as_numpy(table.site)[rows], function])
        first, number = unique_columns(keys)
        made = np.empty(len(first), np.int64)
        for place in np.argsort(first).tolist():
            made[place] = self._make(int(rows[first[place]]))
        return made[number]

    def _make(self, row: int) -> int:
        table = self._table
        name = table.name_of(row)
        called = self._calls.role[row] in (SUBMISSION, EXECUTION)
        site = table.sites[table.site[row]]
        is_of_deployment = not called and bool(self._of_deployments[row])
        label = self._calls.function_of(row) if called else without_suffix(name) if is_of_deployment else name
        index = self._by_label.get(label, -1)
        if index >= 0:
            return index
        if len(self.functions) >= MOST_FUNCTIONS:
            label, called, is_of_deployment, site = BEYOND, False, False, {}
            index = self._by_label.get(label, -1)
            if index >= 0:
                return index
        made = GraphNode(label, "span", table.name[row])
        if called and site.get(names.RAY_ACTOR_METHOD):
            made.kind = "method"
            method = str(site[names.RAY_ACTOR_METHOD])
            given = f' "{self._calls.name_of(row)}"'
            made.method = method + given if label.endswith(given) else method
            made.actor = label.removesuffix(f".{made.method}") or str(site.get(names.RAY_ACTOR_CLASS, ""))
        elif is_of_deployment:
            made.kind = "method"
            made.actor, _, made.method = label.rpartition(".")
        elif called:
            made.kind = "task"
        elif name.endswith(names.driver_name("")):
            made.kind = "driver"
            made.label = name.removesuffix(names.driver_name("")) or name
        self._by_label[label] = len(self.functions)
        self.functions.append(made)
        return len(self.functions) - 1


def _begins(table: Table) -> Any:
    """For each row whether a function begins with it: a root span, one that consumes a message or serves a request.

    What serves a request inside another span of its process, such as FastAPI in a replica, is a part of that.
    """
    kind, parent, resource = map(as_numpy, (table.kind, table.parent, table.resource))
    is_remote = (resource[parent] != resource) | np.isin(kind[parent], (CLIENT, PRODUCER))
    return (parent < 0) | (kind == CONSUMER) | ((kind == SERVER) & is_remote)


def _belonging(is_first: Any, parent: Any, found: _Functions) -> array[int]:
    """For each row the function that its span belongs to: its own if it is the first span of one, else its parent's."""
    top = tops(np.where(is_first, -1, parent))
    # Functions are numbered by the first row that belongs to them, which may come before the row of the call.
    heads, first, number = np.unique(top, return_index=True, return_inverse=True)
    return as_array(found.of(heads[np.argsort(first)])[np.argsort(np.argsort(first))][number], "i")


def median_and_most(values: Iterable[int]) -> tuple[int | None, int | None]:
    """The median and the maximum; None if there are no values."""
    ordered = sorted(values)
    return (percentile(ordered, 0.5), ordered[-1]) if ordered else (None, None)
