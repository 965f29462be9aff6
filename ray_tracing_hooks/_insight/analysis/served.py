"""What a caller waited for when it waited for a request to Ray Serve: the critical path goes through it.

A wait names the object that a call of a deployment returned (``ray.object_ids`` of ``serve.remote``, recorded where
waits are). The call waits for a free replica, is sent to it, waits for the event loop of the replica, and then runs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from ray_tracing_hooks._insight.model.calls import Calls
from ray_tracing_hooks._insight.model.serve_spans import ServeSpans

_TASK_DIGITS = 48


class Served(NamedTuple):
    """The execution of a request in a replica, and when it came to each part of its way; in nanoseconds."""

    row: int
    call: int
    """The row of the call of the deployment."""
    made: int
    chosen: int
    """When it had a replica, if it waited for nothing but that."""
    began: int
    """In the replica."""
    ran: int
    """When the event loop came to it."""


class ServedCalls:
    """The calls of deployments that replicas ran, as what callers wait for."""

    def __init__(self, calls: Calls, spans: ServeSpans | None) -> None:
        self._calls, self._table = calls, calls.table
        self._spans = spans if spans is not None and len(spans.called) else None

    def is_replica(self, frame: int) -> bool:
        return self._spans is not None and frame < len(self._table) and bool(self._spans.is_replica[frame])

    def ran(self, row: int) -> Served | None:
        """How an execution came about; None if its call is not recorded."""
        call = self._table.parent[row]
        if self._spans is None or call < 0 or self._spans.replica[call] < 0:
            return None
        began, end = self._table.start[row], self._table.end_or_now(row)
        made = min(self._table.start[call], began)
        chosen = min(made + int(self._spans.choice[call]), began)
        return Served(row, call, made, chosen, began, min(began + int(self._spans.loop_wait[row]), end))

    def awaited(self, wait: int) -> list[int]:
        """The executions of the requests that a wait was for, as far as they are known."""
        found = (self._by_object.get((self._table.resource[wait], each[:_TASK_DIGITS]), -1) for each in self._ids(wait))
        return [row for row in found if row >= 0]

    def waits_unseen(self, frame: int) -> bool:
        """Whether a frame may wait for requests without a span: replicas do, and callers of those whose object is not
        recorded, such as calls by gRPC.
        """
        return self.is_replica(frame) or frame in self._unlinked

    def made_in(self, frame: int) -> list[int]:
        """The executions of the requests that a frame has made."""
        return self._by_frame.get(frame, [])

    def requested(self, time: int) -> int | None:
        """The request to a proxy, with no context of its client, that was open last before ``time``; None if none was.

        It may be open then.
        """
        rows, starts = self._requests
        place = bisect_left(starts, time) - 1
        return rows[place] if place >= 0 else None

    def freed_by(self, row: int, time: int, since: int) -> int:
        """The execution in the same replica that was the last to end by ``time``, if after ``since``; -1 for none."""
        rows, ends = self._by_end[self._table.resource[row]]
        place = bisect_right(ends, time) - 1
        return rows[place] if place >= 0 and ends[place] > since and rows[place] != row else -1

    def held_by(self, ran: Served) -> int:
        """The execution whose code the event loop had come to before, if it went on into the wait for it; -1 if not."""
        row = self._before.get(ran.row, -1)
        return row if row >= 0 and self._table.end_or_now(row) > ran.began else -1

    def _ids(self, wait: int) -> tuple[str, ...]:
        return self._calls.objects_of(wait) if self._spans is not None else ()

    @cached_property
    def _requests(self) -> tuple[list[int], list[int]]:
        """The last to end of the requests to proxies up to each one, by start; and their starts."""
        spans, frame = self._spans, self._calls.frame
        found = spans.roots().row.tolist() if spans is not None else []
        rows = [row for row in found if spans is not None and spans.is_server[row] and frame[row] == row]
        last = accumulate(rows, lambda one, other: max(one, other, key=self._table.end_or_now))
        return list(last), [self._table.start[row] for row in rows]

    @cached_property
    def _by_object(self) -> dict[tuple[int, str], int]:
        """By the process of the caller and the task of the object, the execution that made it."""
        return {
            (self._table.resource[call], each[:_TASK_DIGITS]): row
            for call, row in self._executions()
            for each in self._table.objects.get(call, ())
        }

    @cached_property
    def _by_frame(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for call, row in self._executions():
            found.setdefault(self._calls.frame[call], []).append(row)
        return found

    @cached_property
    def _unlinked(self) -> set[int]:
        return {self._calls.frame[call] for call, _ in self._executions() if call not in self._table.objects}

    def _executions(self) -> Iterator[tuple[int, int]]:
        """Each call of a deployment that a replica ran, with its execution there."""
        spans = self._spans
        for call in spans.called.tolist() if spans is not None else ():
            if spans is not None and spans.replica[call] >= 0:
                yield call, int(spans.replica[call])

    @cached_property
    def _by_end(self) -> dict[int, tuple[list[int], list[int]]]:
        """The executions of each replica, which is a process, and their ends, by these."""
        ends = self._table.end_or_now
        return {
            replica: (by_end := sorted(rows, key=ends), [ends(row) for row in by_end])
            for replica, rows in self._rows.items()
        }

    @cached_property
    def _before(self) -> dict[int, int]:
        """For each execution, the one in the same replica that its event loop had come to before."""
        spans, start = self._spans, self._table.start
        if spans is None:
            return {}
        by_run = [sorted(rows, key=lambda row: start[row] + int(spans.loop_wait[row])) for rows in self._rows.values()]
        return {after: before for rows in by_run for before, after in pairwise(rows)}

    @cached_property
    def _rows(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row in np.nonzero(self._spans.is_replica)[0].tolist() if self._spans is not None else ():
            found.setdefault(self._table.resource[row], []).append(row)
        return found
