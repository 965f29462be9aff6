"""What a critical path is: its steps, kinds of time, and the edges between steps."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from ray_tracing_hooks._insight.model.calls import (
    SUBMISSION,
    Calls,
)
from ray_tracing_hooks._insight.model.table import Table

RUN = "run"
"""Code of the step's function, method or driver ran. What it did in that time is unknown."""
SUBMIT = "submit"
"""In ``.remote()``. This is part of ``RUN`` steps and occurs only in totals."""
GET_TIME = "get"
"""The object was available, or the call named none: it was fetched and deserialized."""
ACTOR_QUEUE = "actor queue"
"""The actor was busy with other calls."""
WORKER_QUEUE = "worker queue"
"""The worker that ran it was busy with other calls."""
STARTING = "worker start"
"""Everything else was ready: its worker process, or one before it, was starting, until it was ready for work."""
SCHEDULING = "scheduling"
"""The call was ready: time until resources were free, for Ray to lease a worker and fetch arguments, and for the worker
to load them and the code. It includes the start of the worker if that is not recorded."""
DELIVERY = "delivery"
"""The call of a method was ready, and its actor was there: time to send it, with its arguments, until it began."""
WAITING = "waiting"
"""In ``ray.get``, ``ray.wait`` or ``await`` until its timeout or cancellation, for an unavailable object."""
RETRYING = "retrying"
"""From the end of a failed attempt to the start of the next one."""
DATASET = "dataset"
"""The caller waited for Ray Data, which planned, held operators back, scheduled or handed on blocks."""
TRAINING = "training"
"""The caller waited for Ray Train, whose controller has no spans: it started, placed workers, set them up or ended."""
REPLICA_QUEUE = "replica queue"
"""A request to Ray Serve waited for a free replica, or for the event loop of its replica."""
REQUEST_DELIVERY = "request delivery"
"""A request to Ray Serve was sent to its replica, which its router did not have to wait for."""
RESERVING = "reserving"
"""The caller waited for a placement group: until Ray had reserved its bundles on nodes with free resources."""
UNEXPLAINED = "unexplained"

KINDS = (
    *(RUN, SUBMIT, GET_TIME, ACTOR_QUEUE, WORKER_QUEUE, STARTING, SCHEDULING, DELIVERY, WAITING, RETRYING, DATASET),
    *(TRAINING, REPLICA_QUEUE, REQUEST_DELIVERY, RESERVING, UNEXPLAINED),
)

MEANINGS = {
    RUN: "running code",
    SUBMIT: "submitting calls, in .remote()",
    GET_TIME: "fetching results, in ray.get",
    ACTOR_QUEUE: "waiting for a busy actor",
    WORKER_QUEUE: "waiting for a busy worker",
    STARTING: "starting worker processes",
    SCHEDULING: "scheduling and loading: resources, leases, workers, arguments and code",
    DELIVERY: "delivering calls to actors, with their arguments",
    WAITING: "waiting without a result: ray.wait and ray.get until their timeout",
    RETRYING: "delay before a retry",
    DATASET: "in Ray Data: planning, backpressure, handing on blocks",
    TRAINING: "in Ray Train: its controller, and setting up workers",
    REPLICA_QUEUE: "in Ray Serve: waiting for replicas, or for their event loops",
    REQUEST_DELIVERY: "in Ray Serve: arguments of requests, and their way to replicas",
    RESERVING: "reserving placement groups",
    UNEXPLAINED: "unexplained: no span shows the reason",
}
"""What each kind means, for people."""

_HEADS = Counter(meaning.partition(":")[0] for meaning in MEANINGS.values())

SHORT_MEANINGS = {
    kind: head if _HEADS[head := meaning.partition(":")[0]] == 1 else meaning for kind, meaning in MEANINGS.items()
}
"""The same without what explains it, unless another kind begins with the same words."""

BY_SUBMISSION, BY_ARGUMENT, BY_CREATION, BY_ACTOR, BY_WORKER = "submission", "argument", "creation", "actor", "worker"
BY_RETRY, BY_GET, BY_ITEM, BY_CODE, BY_NOTHING = "retry", "get", "generator item", "code", "nothing"
BY_RANK = "rank"
"""Edges: why a step could not start earlier. ``rank``: another rank of Ray Train came to the step last; ``code``: it
follows other code of the same frame; ``nothing``: no reason is known."""


class PathStep(NamedTuple):
    """A part of the path. Times are nanoseconds since the epoch."""

    kind: str
    start: int
    end: int
    row: int
    """The row of its span: the execution or driver that ran, the wait, or the execution that had to wait. It may be a
    frame of :class:`~ray_tracing_hooks._insight.model.calls.Calls` without a row; -1 for none."""
    edge: str
    """What made it wait until ``start``."""
    source: int
    """The row of the span that it waited for; -1 if there is none."""
    is_assumed: bool = False
    """Whether the edge is assumed and not recorded."""

    @property
    def took(self) -> int:
        return self.end - self.start

    @property
    def time(self) -> tuple[int, int]:
        """Start and end."""
        return self.start, self.end


@dataclass
class Path:
    """The path through one run. Times are in nanoseconds."""

    start: int
    end: int
    root: int
    """The frame at whose end the path ends: the driver, or the frame that ended last."""
    steps: list[PathStep]
    """In order, without gaps and overlaps: their durations add up to the wall time."""
    is_recorded: bool
    """Whether no edge is assumed, and waiting was recorded wherever code ran on the path."""
    is_exact: bool
    """Whether it is recorded, with the driver's own span, no spans are known to be missing, and no clocks differed."""
    is_cut: bool = False
    """Whether no span of a driver says when the run began and ended: the first and the last span that was read do."""
    released: set[int] = field(default_factory=set)
    """Methods on the path during which another call of their actor ran from begin to end. It may be what they waited
    for, as for an item of a queue."""
    has_requests: bool = False
    """Whether a driver is assumed to have waited for requests to a proxy of Ray Serve."""
    is_estimated: bool = False
    """Whether it includes spans that had not ended, or whose end is unknown."""
    machines: int = 1
    """How many machines it passes through, by whose clocks its times are."""
    clamped: int = 0
    """By how much causes ended after their effects, in total: because of clock skew or estimated ends."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Time by kind. Adds up to the wall time."""
    functions: Counter[str] = field(default_factory=Counter)
    """Time on the path in which each function's code ran, including submissions."""
    submitting: Counter[str] = field(default_factory=Counter)
    """Time on the path that submitting calls of each function took."""
    executions: Counter[int] = field(default_factory=Counter)
    """By row of an execution: the time of the steps that are its own code, its wait to start (after a failed attempt
    too), or the fetching of its result."""
    first_scheduling: dict[str, int] = field(default_factory=dict)
    """For each function, how long its first call on the path waited for Ray, since that is when workers start."""

    @property
    def wall(self) -> int:
        return self.end - self.start

    @property
    def coverage(self) -> float:
        """The explained share of the wall time, from 0 to 1."""
        return 1 - self.kinds[UNEXPLAINED] / self.wall if self.wall else 1.0


def submissions(calls: Calls, step: PathStep) -> list[tuple[int, int]]:
    """The submissions in a step of running code, with the time that each took, without counting any time twice."""
    members = calls.members(step.row)
    table = calls.table
    found, done = [], step.start
    for place in range(bisect_left(members, step.start, key=table.start.__getitem__), len(members)):
        row = members[place]
        begin, end = max(table.start[row], done), min(table.end_or_now(row), step.end)
        if begin >= step.end:
            break
        if calls.role[row] == SUBMISSION and end > begin:
            found.append((row, end - begin))
            done = end
    return found


def within(table: Table, path: Path, rows: Collection[int]) -> Counter[int]:
    """For each of these rows the time of the path in it and in all that is below it, but in none of the others."""
    found: Counter[int] = Counter()
    for step in path.steps if rows else ():
        if (row := table.around(step.row, rows)) >= 0:
            found[row] += step.took
    return found
