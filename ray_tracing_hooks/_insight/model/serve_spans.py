"""The spans of Ray Serve in a table: which replica ran which call, what proxies and replicas called, and requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.calls import EXECUTION, OTHER, SUBMISSION, Calls
from ray_tracing_hooks._insight.model.generations import Generations
from ray_tracing_hooks._insight.model.grouped import nearest, tops
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.span import CONSUMER, INTERNAL, PRODUCER, SERVER, call_name
from ray_tracing_hooks._insight.model.table import ENDED, LOST, Table

_OF_DEPLOYMENTS = names.SERVE_CALL, names.SERVE_REPLICA, names.SERVE_BATCH, names.SERVE_CHOICE, names.SERVE_ROUTE
_LOADING = f" {names.SERVE_MULTIPLEXED}"
_SUFFIXES = _CALL, _REPLICA, _BATCH, _CHOICE, _ROUTE = [f" {each}" for each in _OF_DEPLOYMENTS]

_MOST_LEVELS = 64
"""Of spans in each other."""

LAG = 20_000_000
"""How much later than its result is there an execution may end, in nanoseconds: a replica sends the result first."""


def may_have_requests(table: Table) -> bool:
    """Whether there may be requests in it: most programs have none, which is quickly seen."""
    return any(each.endswith(_CALL) for each in table.names) or SERVER in table.kind


class Roots(NamedTuple):
    """Requests: the row of each, the replica's row if a handle made the call (else -1), its begin and its end."""

    row: Any
    replica: Any
    begin: Any
    end: Any


class ServeSpans:
    """The spans of requests, as NumPy columns over all rows of a table."""

    def __init__(self, calls: Calls, generations: Generations | None = None) -> None:
        table = self.table = calls.table
        self.generations = generations
        self.generation = np.full(len(table), -1)
        """For each row its place in ``generations``, -1 for other spans."""
        if generations is not None:
            self.generation[generations.row] = np.arange(len(generations.row))
        self.start, self.ends = as_numpy(table.start), as_numpy(table.ends)
        self.resource = as_numpy(table.resource)
        self.name, self.site, kind = as_numpy(table.name), as_numpy(table.site), as_numpy(table.kind)
        self.is_server = (kind == SERVER) & table.is_ours()
        # The start of a replica has the same suffix, and another kind.
        self.is_replica = self._ends_with(_REPLICA) & (kind == CONSUMER)
        self.starts = np.nonzero(self._ends_with(_REPLICA) & (kind == INTERNAL))[0]
        """The constructors of replicas."""
        self.is_batch = self._ends_with(_BATCH)
        self.is_loading = self._ends_with(_LOADING) & (kind == INTERNAL)
        """Loads of models."""
        self.is_choice = self._ends_with(_CHOICE) & ~self.is_server
        """Replicas that are chosen before they are called."""
        self.is_direct = self.is_server & table.is_at(lambda site: names.RAY_SERVE_REPLICA_ID in site)
        """Requests that reach a replica without a proxy: one span is both."""
        self.is_route = self._ends_with(_ROUTE) & (kind == INTERNAL)
        """Routers that chose the replica of a request before HAProxy forwarded it."""
        # A route may end like the name of a call.
        is_call = self._ends_with(_CALL) & (kind == PRODUCER)
        self.is_failed, self.state = table.is_failed(), as_numpy(table.state)
        is_frame = self.is_server | self.is_replica | self.is_route
        self.has_error = self.is_failed | table.is_at(lambda site: names.ERROR_TYPE in site)
        """Those too that were cancelled, which is no failure of a replica."""
        parent = as_numpy(table.parent)
        self._replica_frame = nearest(is_frame, parent)
        self.above = np.where(parent >= 0, self._replica_frame[parent], -1)
        """For each row the nearest proxy, router or replica above it, -1 if there is none."""
        self.is_inner = self._are_inner(calls) & ~is_call & ~self.is_choice
        """Spans of the program, of the loading of models, and generations, in the code of a replica."""
        self.frame = nearest(is_frame | self.is_inner, parent)
        """For each row the nearest span around it that is a proxy's, a router's, a replica's or in a replica's code, -1
        if there is none."""
        self.called = np.nonzero(is_call)[0]
        self.replica = self._last_replicas(parent, is_call)
        """For each call of a deployment the row of its execution, -1 if there is none."""
        submitted = as_numpy(table.submitted)
        chosen = np.where(is_call | self.is_direct, np.maximum(submitted, 0), 0)
        self.choice = np.where(self.is_choice, self.ends - self.start, chosen)
        """For each call of a deployment how long it took to choose a replica; 0 if that is short or not recorded. For a
        request that reaches a replica without a proxy, the same before it began; for a choice, all of it."""
        self.loop_wait = np.where(self.is_replica | self.is_direct, np.maximum(-submitted, 0), 0)
        """For each request in a replica how long it waited for the event loop; 0 if that is short or not recorded."""
        self.is_unrecorded = is_call & (self.replica < 0) & ~self.is_failed
        """Calls that a replica has accepted, of whose execution nothing is recorded."""
        self._find_calls(calls)
        self._number_subjects([call_name(each) for each in table.names])

    def _are_inner(self, calls: Calls) -> Any:
        table, kind = self.table, as_numpy(self.table.kind)
        # A server in a replica is the instrumentation of the application: it is all of its code.
        may_be = (~table.is_ours() & (kind != SERVER) | self.is_loading) & (as_numpy(calls.role) == OTHER)
        if self.generations is not None:
            # What an engine tells of a generation is in the span of that.
            is_generation = self.generation >= 0
            may_be = is_generation | may_be & (nearest(is_generation, as_numpy(table.parent)) < 0)
        around, resource = self._replica_frame, self.resource
        is_in_replica = (around >= 0) & (self.is_replica | self.is_direct)[around]
        return may_be & is_in_replica & (resource[around] == resource)

    def _ends_with(self, suffix: str) -> Any:
        return self.table.is_named(lambda name: name.endswith(suffix))

    def _last_replicas(self, parent: Any, is_call: Any) -> Any:
        found = np.full(len(self.table), -1)
        ran = np.nonzero(self.is_replica)[0]
        ran = ran[(parent[ran] >= 0) & is_call[parent[ran]]]
        ran = ran[np.argsort(self.ends[ran], kind="stable")]
        found[parent[ran]] = ran  # the last one, where several replicas were tried
        return found

    def _find_calls(self, calls: Calls) -> None:
        """What proxies and replicas have called: deployments, and tasks and methods of actors that ran. With them the
        spans in the code of replicas.

        What those have called in turn is not theirs.
        """
        role, parent = as_numpy(calls.role), as_numpy(self.table.parent)
        inside = tops(np.where((role == EXECUTION) | (self.frame == np.arange(len(parent))), -1, parent))
        is_own = (self.frame >= 0) & (inside == self.frame)
        submitted = np.nonzero((role == SUBMISSION) & is_own)[0]
        execution = as_numpy(calls.execution)[as_numpy(calls.call_of)[submitted]]
        submitted, execution = submitted[execution >= 0], execution[execution >= 0]
        made = np.nonzero(is_own & self.is_choice)[0]
        made = np.concatenate([self.called[is_own[self.called]], made])
        inner = np.nonzero(self.is_inner)[0]
        self.made = np.concatenate([made, submitted, inner])
        self.made_end = np.concatenate([self.end_of_call(made), self.ends[execution], self.ends[inner]])
        self.made_frame = self.frame[np.concatenate([made, submitted, parent[inner]])]
        """Of each of ``made``, the span whose code called it, or of which it is a part."""
        is_lost = (self.replica[made] >= 0) & (self.state[self.replica[made]] == LOST)
        self._end_with_next(np.nonzero(is_lost | self.is_unrecorded[made])[0])
        self.is_of_serve = np.arange(len(self.made)) < len(made)
        self._lift()

    def _lift(self) -> None:
        """What ended after the program's span in which it was called was waited for in the code around that."""
        parent = as_numpy(self.table.parent)
        above = np.where(parent >= 0, self.frame[parent], -1)
        for _ in range(_MOST_LEVELS):
            frame = self.made_frame
            is_longer = self.is_inner[frame] & (frame >= 0) & (self.made_end - LAG > self.ends[frame])
            if not is_longer.any():
                return
            self.made_frame = np.where(is_longer, above[frame], frame)

    def _end_with_next(self, calls: Any) -> None:
        """Let these of the calls in ``made`` last until the caller's next call, or else as long as it lasts.

        When they ended is not known. What the caller did next, it did after that.
        """
        frame, size = self.made_frame, len(self.start)
        keys = np.sort(frame.astype(np.int64) * size + self.made)
        later = np.searchsorted(self.start, self.made_end[calls])
        place = np.searchsorted(keys, frame[calls].astype(np.int64) * size + later)
        following = keys[np.minimum(place, len(keys) - 1)]
        has_next = (place < len(keys)) & (following // size == frame[calls])
        last = np.maximum(self.ends[frame[calls]], self.made_end[calls])
        self.made_end[calls] = np.where(has_next, self.start[following % size], last)

    def _number_subjects(self, functions: Sequence[str]) -> None:
        sites = self.table.sites
        numbers: dict[_Label, int] = {}
        of_call = _numbered([without_suffix(each) for each in functions], numbers)
        of_route = _numbered(self.table.names, numbers)
        of_site = _numbered([_method_called(site) for site in sites], numbers)
        applications: dict[_Label, int] = {}
        of_application = _numbered([str(site.get(names.RAY_SERVE_APPLICATION) or "") for site in sites], applications)
        self._labels, self._applications = list(numbers), list(map(str, applications))
        application = of_application[self.site]
        label = np.where(self.is_server, of_route[self.name], of_call[self.name])
        self.subject = label * len(applications) + application
        """For each row the number of what it is about, in its application: a route, a method, a task."""
        self.method = np.where(self.is_direct, of_site[self.site] * len(applications) + application, self.subject)
        """The same, but the method that a replica runs for requests that reach it without a proxy."""
        self._number_inner(numbers)
        self._labels = list(numbers)

    def _number_inner(self, numbers: dict[_Label, int]) -> None:
        """Spans in the code of a method have both names as their key."""
        rows, size = np.nonzero(self.is_inner)[0], len(self._applications)
        if not len(rows):
            return
        own = self.method[self._replica_frame[rows]]
        pairs, which = np.unique(own * len(self.table.names) + self.name[rows], return_inverse=True)
        found = []
        for pair in pairs.tolist():
            method, name = divmod(pair, len(self.table.names))
            label = self._labels[method // size], self.table.names[name]
            found.append(numbers.setdefault(label, len(numbers)) * size + method % size)
        self.subject[rows] = self.method[rows] = np.array(found, np.int64)[which]

    def named(self, subject: int) -> tuple[str, str]:
        """What a subject is, and its application: of a span in the code of a method, that method."""
        label, application = divmod(subject, len(self._applications))
        found = self._labels[label]
        return found if isinstance(found, str) else found[0], self._applications[application]

    def span_of(self, subject: int) -> str:
        """The name of the span in the code of a method; empty if a subject is something else."""
        found = self._labels[subject // len(self._applications)]
        return "" if isinstance(found, str) else found[1]

    def end_of_call(self, rows: Any) -> Any:
        """When these calls of deployments ended: with their execution, if there is one."""
        replica = self.replica[rows]
        # Where clocks differ, it may seem to have ended before it was called.
        return np.where(replica >= 0, np.maximum(self.ends[replica], self.start[rows]), self.ends[rows])

    def around(self, row: int) -> int:
        """The proxy, router or replica that a span is of, or is nearest below; -1 if there is none."""
        return int(self._replica_frame[row])

    def end_of(self, rows: Any) -> Any:
        """When these calls of deployments, requests or executions ended."""
        return np.where(self.replica[rows] >= 0, self.end_of_call(rows), self.ends[rows])

    def took(self, row: int) -> int:
        """How long one of these took, in nanoseconds."""
        return max(0, int(self.end_of(np.array([row]))[0] - self.start[row]))

    def is_ended(self, rows: Any) -> Any:
        """Whether it is recorded when these ended."""
        replica = self.replica[rows]
        return (
            (self.state[rows] == ENDED) & ((replica < 0) | (self.state[replica] == ENDED)) & ~self.is_unrecorded[rows]
        )

    def roots(self) -> Roots:
        """All requests, by start."""
        above = self.above
        servers = np.nonzero(self.is_server & ((above < 0) | self.is_route[above]))[0]
        handles = self.called[self.frame[self.called] < 0]
        rows = np.concatenate([servers, handles])
        replica = np.concatenate([np.full(len(servers), -1), self.replica[handles]])
        ends = np.concatenate([self.ends[servers], self.end_of_call(handles)])
        order = np.argsort(rows)
        rows = rows[order]
        begins = self.start[rows] - np.where(self.is_direct[rows], self.choice[rows], 0)
        return Roots(rows, replica[order], begins, ends[order])


_Label = str | tuple[str, str]


def _numbered(texts: Sequence[str], numbers: dict[_Label, int]) -> Any:
    """The number of each text, as a NumPy column; new ones are added to ``numbers``."""
    return np.array([numbers.setdefault(each, len(numbers)) for each in texts], np.int64)


def _method_called(site: Mapping[str, Any]) -> str:
    return f"{site.get(names.RAY_SERVE_DEPLOYMENT, '')}.{site.get(names.RAY_SERVE_METHOD, '')}"


def of_methods(table: Table) -> Any:
    """For each row whether it calls a method of a deployment, runs one, or starts a replica, as a NumPy column."""
    kind = as_numpy(table.kind)
    calls, runs = (
        table.is_named(lambda name: name.endswith(_CALL)),
        table.is_named(lambda name: name.endswith(_REPLICA)),
    )
    # A route may end like these names.
    return (calls & (kind == PRODUCER)) | (runs & (kind != SERVER))


def is_refused(table: Table, row: int) -> bool:
    """Whether a call of a deployment failed since as many as may wait for a replica did so already."""
    error = table.attribute(row, names.ERROR_TYPE)
    return table.failed(row) and isinstance(error, str) and error.endswith(".BackPressureError")


def without_suffix(name: str) -> str:
    """``Front.__call__`` for the name of a span of that method of a deployment; any other name unchanged."""
    return next((name.removesuffix(each) for each in _SUFFIXES if name.endswith(each)), name)
