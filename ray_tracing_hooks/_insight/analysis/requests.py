"""Requests to Ray Serve: how long they took, and what their time went to.

A request is a SERVER span of a proxy, or of a replica that clients reach directly; or a call of a deployment by a
handle that is in no other request. The choice of a replica for HAProxy, before it forwarded a request, belongs to that
request, though its span is not in it. Its time is split along its critical path: back from its end, through whatever it
waited for at each moment. A replica is assumed to have waited for the call of its own that ended last, unless that went
on after it had finished; in the time between such calls its own code ran, or waited for something that has no span
here, such as the batch of a request.

A call of a deployment consists of the choice of a replica, which waits for a free one; the rest of the time until it
begins there; and its execution (``serve.replica``). The router resolves arguments before it chooses a replica, so of
the calls that ended before the choice can have begun, the last one was its argument.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.wording import plain
from ray_tracing_hooks._insight.model.grouped import split, sums
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.serve_spans import LAG, Roots, ServeSpans
from ray_tracing_hooks._insight.model.table import ENDED, LOST, RUNNING

PROXY = "proxy"
"""In the proxy: it received the request, looked for a route, or sent the response."""
REPLICA_WAIT = "replica wait"
"""A replica was chosen for a call of a deployment: it waited for a free one."""
DELIVERY = "delivery"
"""The rest of the time until a call began in its replica: for its arguments, in the router, and on its way."""
UNRECORDED = "unrecorded"
"""A replica had accepted a call, of which it has recorded nothing."""
LOOP = "event loop"
"""A replica had accepted a call, whose code waited for the event loop of the replica, which other code kept."""
SPAN = "span"
"""In a span of the program in the code of a deployment, or in the loading of a model."""
CODE = "code"
"""The code of a deployment ran, or waited for something that has no span in the request."""
BEFORE_ENGINE = "before engine"
"""The code of a deployment, before an LLM engine had the request."""
AFTER_ENGINE = "after engine"
"""The same, when the engine had ended it."""
ENGINE_FRONT = "engine front end"
"""In the front end of an LLM engine, and on the way between that and its core."""
ENGINE_QUEUE = "engine queue"
"""In the queue of the engine."""
ENGINE_PREFILL = "engine prefill"
"""From there to the first token."""
ENGINE_DECODE = "engine decode"
"""From there to the last token."""
ENGINE = "engine"
"""In an engine that did not tell more of it."""
CALLS = "calls"
"""It waited for a task or a method of an actor."""

_IN_ENGINE = (ENGINE_FRONT, ENGINE_QUEUE, ENGINE_PREFILL, ENGINE_DECODE, ENGINE)
OWN_KINDS = (LOOP, SPAN, CODE, BEFORE_ENGINE, AFTER_ENGINE, *_IN_ENGINE)
"""The time of the code of a deployment, and of what it waited for in its own process."""
KINDS = (PROXY, REPLICA_WAIT, DELIVERY, UNRECORDED, *OWN_KINDS, CALLS)

MEANINGS = {
    PROXY: "{}: in the proxy",
    REPLICA_WAIT: "{}: waiting for a replica",
    DELIVERY: "{}: its arguments, and the way to its replica",
    UNRECORDED: "{}: in a replica that recorded nothing of it",
    LOOP: "{}: waiting for the event loop of its replica",
    SPAN: "{}: in its spans",
    CODE: "{}: its code, or waiting without a span",
    BEFORE_ENGINE: "{}: its code before the engine",
    AFTER_ENGINE: "{}: its code after the engine",
    ENGINE_FRONT: "{}: the engine's front end",
    ENGINE_QUEUE: "{}: in the engine's queue",
    ENGINE_PREFILL: "{}: the engine's prefill",
    ENGINE_DECODE: "{}: the engine's decode",
    ENGINE: "{}: in the engine, which told no more of it",
    CALLS: "{}: called as a task or a method of an actor",
}
"""What each kind means, for people, of the name of a part."""

_BATCHED = "{}: its code, or waiting for its batch"

SLOWEST = 0.05
"""The share of requests that are looked at on their own."""
LEAST_FOR_SLOWEST = 20
_LEAST_FOR_TAIL = 100
"""The slowest of fewer requests are too few to have something in common."""
_TIMES_SLOWER = 2
_MOST_OF = 0.5

MOST_ROWS = 20


def _times() -> array[int]:
    return array("q")


@dataclass
class Route:
    """Requests with the same name, such as ``GET /shop``, or the method of a deployment that a handle called."""

    name: str
    application: str
    is_handle: bool
    """Whether a handle called a deployment."""
    rows: array[int]
    """The row of each request, by start."""
    durations: array[int]
    """Of each, sorted; in nanoseconds."""
    failed: int
    slowest: int
    """The row of the one that took longest."""


@dataclass
class TimePart:
    """What a part of the time of all requests went to. Times are nanoseconds."""

    kind: str
    name: str
    """Of the route, the method of a deployment, or the function."""
    application: str
    time: int
    slow_time: int
    """The same in the slowest requests alone."""
    span: str = ""
    """The name of the program's span; empty for all other kinds."""


@dataclass
class Method:
    """A method of a deployment, or another function of it that runs batches. Lists of nanoseconds are sorted."""

    name: str
    application: str
    executions: int = 0
    failed: int = 0
    waited: array[int] = field(default_factory=_times)
    """From each call until it began in a replica, where both are recorded."""
    longest: list[int] = field(default_factory=list)
    """The rows of the calls that waited longest, at most :data:`MOST_ROWS`, the longest first."""
    durations: array[int] = field(default_factory=_times)
    """Of the executions whose process did not die."""
    in_requests: int = 0
    """How much of the time of requests passed in it, with all that it called."""
    replicas: int = 0
    """How many replicas ran it."""
    batches: array[int] = field(default_factory=_times)
    """How long it took for each batch of requests."""


class SlowestRequests(NamedTuple):
    """What distinguishes the slowest requests most from the others. Times are nanoseconds for each request."""

    part: TimePart
    share: float
    """How much of the difference between the averages it makes up."""
    slow: float
    """How long the slowest requests took on average, and below how long the others did."""
    others: float
    slow_part: float
    others_part: float
    rows: list[int]
    """The slowest requests, the slowest first."""


@dataclass
class Requests:
    """The requests of a run that have ended."""

    routes: list[Route]
    """The one whose requests took most time first, like the others."""
    parts: list[TimePart]
    methods: list[Method]
    running: int
    """How many requests have not ended."""
    unrecorded: int
    """How many calls by handles no replica has recorded, so that it is not known how long they took."""
    slow: int
    """How many are the slowest; 0 if there are too few to look at these on their own."""
    tail: SlowestRequests | None = None
    """None if there are too few requests, or nothing explains most of the difference."""

    @property
    def count(self) -> int:
        return sum(len(each.rows) for each in self.routes)

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.routes)

    @property
    def time(self) -> int:
        """What all requests took, added up; in nanoseconds."""
        return sum(each.time for each in self.parts)

    @property
    def slow_time(self) -> int:
        """The same of the slowest requests alone."""
        return sum(each.slow_time for each in self.parts)

    def full_name(self, of: Route | TimePart | Method) -> str:
        """Its name, with the application where several applications have one of that name."""
        return f"{of.name} ({of.application})" if of.name in self._ambiguous else of.name

    def described(self, part: TimePart) -> str:
        """What a part of the time went to, in words."""
        if part.kind == SPAN:
            return f"{plain(self.full_name(part))}: its span {part.span}"
        own, deployment = (part.application, part.name), (part.application, part.name.rpartition(".")[0])
        is_batched = part.kind == CODE and (own in self._batching or deployment in self._batching)
        return (_BATCHED if is_batched else MEANINGS[part.kind]).format(plain(self.full_name(part)))

    @cached_property
    def _ambiguous(self) -> frozenset[str]:
        applications: dict[str, set[str]] = {}
        named: list[Route | Method] = [*self.routes, *self.methods]
        for each in named:
            applications.setdefault(each.name, set()).add(each.application)
        return frozenset(name for name, several in applications.items() if len(several) > 1)

    @cached_property
    def _batching(self) -> set[tuple[str, str]]:
        """The methods that run in batches, and the deployments whose methods may call another function that does."""
        return {
            (each.application, each.name if each.executions else each.name.rpartition(".")[0])
            for each in self.methods
            if each.batches
        }


def requests(found: ServeSpans, is_failed: Any) -> Requests | None:
    """The requests among these spans; None if there are none. ``is_failed`` is a NumPy column."""
    roots, state = found.roots(), as_numpy(found.table.state)
    if not len(roots.row):
        return None
    is_running = (state[roots.row] == RUNNING) | ((roots.replica >= 0) & (state[roots.replica] == RUNNING))
    running = int(np.count_nonzero(is_running))
    is_unrecorded = found.is_unrecorded[roots.row] & ~is_running
    roots = Roots(*(column[~is_running & ~is_unrecorded] for column in roots))
    durations = roots.end - roots.begin
    is_slow = np.zeros(len(durations), bool)
    if len(durations) >= LEAST_FOR_SLOWEST:
        is_slow[np.argsort(-durations, kind="stable")[: round(len(durations) * SLOWEST)]] = True
    # Where most were refused, those that were served are no tail.
    served = 2 * int(np.count_nonzero(is_failed[roots.row])) < len(durations)
    walk = _RequestWalk(found)
    walk.go(roots)
    parts = walk.parts(is_slow)
    return Requests(
        _routes(found, roots, durations, is_failed),
        [part for part, _ in parts],
        _methods(found, is_failed, walk.times_inside()),
        running,
        int(np.count_nonzero(is_unrecorded)),
        int(np.count_nonzero(is_slow)),
        walk.tail(parts, is_slow, roots.row, durations) if len(durations) >= _LEAST_FOR_TAIL and served else None,
    )


class _Frames(NamedTuple):
    """Executions, or proxies, of which a part of the time belongs to a request."""

    row: Any
    begin: Any
    end: Any
    request: Any


class _RequestWalk:
    """Goes through all requests at once, from the outermost spans to the innermost ones."""

    def __init__(self, spans: ServeSpans) -> None:
        self._spans = spans
        self._found: list[tuple[str, Any, Any, Any]] = []
        """Kinds, requests, subjects and times."""
        self._ran: list[tuple[Any, Any]] = []
        """Methods of deployments, and the times of requests in them."""

    def go(self, roots: Roots) -> None:
        spans, request = self._spans, np.arange(len(roots.row))
        begin = spans.start[roots.row]
        self._found.append((REPLICA_WAIT, request, spans.method[roots.row], begin - roots.begin))
        is_server = spans.is_server[roots.row]
        by_handle = self._called(roots.row[~is_server], begin[~is_server], roots.end[~is_server], request[~is_server])
        by_client = _Frames(roots.row[is_server], begin[is_server], roots.end[is_server], request[is_server])
        frames = _joined([by_client, by_handle])
        while len(frames.row):
            frames = self._inside(frames)

    def parts(self, is_slow: Any) -> list[tuple[TimePart, int]]:
        """What was found, the longest first, with the number of what it is about."""
        spans = self._spans
        found = []
        for kind in KINDS:
            mine = [each[1:] for each in self._found if each[0] == kind]
            if not mine:
                continue
            request, subject, took = (np.concatenate(column) for column in zip(*mine, strict=True))
            subjects, place = np.unique(subject, return_inverse=True)
            times = sums(place, took, len(subjects))
            slow = sums(place, np.where(is_slow[request], took, 0), len(subjects))
            each_subject = zip(subjects.tolist(), times, slow, strict=True)
            found += [
                (TimePart(kind, *spans.named(each), time, slow, spans.span_of(each)), each)
                for each, time, slow in each_subject
                if time
            ]
        return sorted(found, key=lambda each: (-each[0].time, each[0].kind, each[0].name, each[0].span))

    def tail(
        self, parts: list[tuple[TimePart, int]], is_slow: Any, rows: Any, durations: Any
    ) -> SlowestRequests | None:
        """What most of the difference of the slowest requests is; None if it is not one part, of most of them."""
        many, others = int(np.count_nonzero(is_slow)), int(np.count_nonzero(~is_slow))
        slow, usual = float(np.mean(durations[is_slow])), float(np.mean(durations[~is_slow]))

        def more(part: TimePart) -> float:
            return part.slow_time / many - (part.time - part.slow_time) / others

        part, subject = max(parts, key=lambda each: more(each[0]))
        if slow < _TIMES_SLOWER * usual or more(part) < _MOST_OF * (slow - usual):
            return None
        mine = [each[1:] for each in self._found if each[0] == part.kind]
        request, subjects, took = (np.concatenate(column) for column in zip(*mine, strict=True))
        which = subjects == subject
        each = np.bincount(request[which], took[which], len(durations))
        # One request that took very long is no tail.
        if np.median(each[is_slow]) < (part.time - part.slow_time) / others + _MOST_OF * more(part):
            return None
        slowest = np.nonzero(is_slow)[0]
        return SlowestRequests(
            part,
            more(part) / (slow - usual),
            slow,
            usual,
            part.slow_time / many,
            (part.time - part.slow_time) / others,
            rows[slowest[np.argsort(-durations[slowest], kind="stable")]].tolist(),
        )

    def times_inside(self) -> dict[int, int]:
        """How much of the time of requests passed in each method of a deployment, with all that it called."""
        if not self._ran:
            return {}
        method, took = (np.concatenate(column) for column in zip(*self._ran, strict=True))
        methods, place = np.unique(method, return_inverse=True)
        return dict(zip(methods.tolist(), sums(place, took, len(methods)), strict=True))

    def _called(self, row: Any, begin: Any, end: Any, request: Any) -> _Frames:
        """Calls of deployments that the path goes through, from ``begin`` to ``end``; returns their executions."""
        spans = self._spans
        replica, subject = spans.replica[row], spans.subject[row]
        accepted = np.where(spans.is_unrecorded[row], np.clip(spans.ends[row], begin, end), end)
        began = np.where(replica >= 0, np.clip(spans.start[replica], begin, end), accepted)
        waited = np.minimum(spans.choice[row], began - begin)
        self._found.append((REPLICA_WAIT, request, subject, waited))
        self._found.append((DELIVERY, request, subject, began - begin - waited))
        self._found.append((UNRECORDED, request, subject, np.where(replica >= 0, 0, end - began)))
        ran = (replica >= 0) & (end > began)
        return _Frames(replica[ran], began[ran], end[ran], request[ran])

    def _after_arguments(self, made: Any, at: Any, begin: Any, end: Any) -> Any:
        """When each call of a frame had its arguments, if other calls of that frame were among these: else its start.

        ``made``, ``at``, ``begin``, ``end``: the calls, the places of their frames, and their times.
        """
        spans, row = self._spans, self._spans.made[made]
        replica = spans.replica[row]
        chosen = np.where(replica >= 0, spans.start[replica] - spans.choice[row], 0)
        order = np.lexsort((end, at))
        order = order[~spans.is_inner[row[order]]]
        if not len(order):
            return begin
        times, rank = np.unique(end, return_inverse=True)
        keys = (at * (len(times) + 1) + rank)[order]
        before = np.searchsorted(keys, at * (len(times) + 1) + np.searchsorted(times, chosen)) - 1
        other = order[np.maximum(before, 0)]
        is_argument = (before >= 0) & (at[other] == at) & (row[other] < row) & (end[other] > begin)
        return np.where(spans.is_of_serve[made] & is_argument, end[other], begin)

    def _outlives(self, made: Any) -> Any:
        """Which of these calls were still running when the deployment that made them had finished."""
        spans = self._spans
        frame = spans.made_frame[made]
        has_finished = ~spans.is_server[frame] & ~spans.has_error[frame] & (spans.state[frame] == ENDED)
        has_finished &= spans.generation[spans.made[made]] < 0
        return has_finished & (spans.made_end[made] - LAG > spans.ends[frame])

    def _inside(self, frames: _Frames) -> _Frames:
        """Go through proxies and executions; returns the executions of what they called."""
        spans = self._spans
        place = np.full(len(spans.table) + 1, -1)
        place[frames.row] = np.arange(len(frames.row))
        at = np.where(spans.made_frame >= 0, place[spans.made_frame], -1)
        mine = np.nonzero(at >= 0)[0]
        at = at[mine]
        begin = np.maximum(spans.start[spans.made[mine]], frames.begin[at])
        end = np.minimum(spans.made_end[mine], frames.end[at])
        some = np.nonzero((end > begin) & ~self._outlives(mine))[0]
        some = some[np.lexsort((-end[some], at[some]))]
        mine, at, begin, end = mine[some], at[some], begin[some], end[some]
        begin = self._after_arguments(mine, at, begin, end)
        own, passed = _back(frames, at, begin, end, spans.is_inner[spans.made[mine]])
        self._add_own(frames, own, *self._around_engine(frames, mine[passed], at[passed], begin[passed], end[passed]))
        mine, request, begin, end = mine[passed], frames.request[at[passed]], begin[passed], end[passed]
        row, is_of_serve = spans.made[mine], spans.is_of_serve[mine]
        is_inner = spans.is_inner[row]
        is_call = ~is_of_serve & ~is_inner
        self._found.append((CALLS, request[is_call], spans.subject[row[is_call]], (end - begin)[is_call]))
        inner = _Frames(row[is_inner], begin[is_inner], end[is_inner], request[is_inner])
        return _joined(
            [inner, self._called(row[is_of_serve], begin[is_of_serve], end[is_of_serve], request[is_of_serve])]
        )

    def _around_engine(self, frames: _Frames, made: Any, at: Any, begin: Any, end: Any) -> tuple[Any, Any]:
        """How much of the own time of frames was before the first generation in it, and how much after the last one.

        ``made``, ``at``, ``begin``, ``end``: what the path goes through in the frames.
        """
        spans = self._spans
        before, after = (np.zeros(len(frames.row), np.int64) for _ in range(2))
        is_generation = spans.generation[spans.made[made]] >= 0
        if not is_generation.any():
            return before, after
        has, first, last = np.zeros(len(before), bool), frames.end.copy(), frames.begin.copy()
        has[at[is_generation]] = True
        np.minimum.at(first, at[is_generation], begin[is_generation])
        np.maximum.at(last, at[is_generation], end[is_generation])
        np.subtract.at(before, at, np.where(end <= first[at], end - begin, 0))
        np.subtract.at(after, at, np.where(begin >= last[at], end - begin, 0))
        before, after = before + first - frames.begin, after + frames.end - last
        return np.where(has, before, 0), np.where(has, after, 0)

    def _add_engine(self, frames: _Frames) -> None:
        spans, found = self._spans, self._spans.generations
        which = spans.generation[frames.row]
        is_its = which >= 0
        if found is None or not is_its.any():
            return
        row, begin, end, request = (column[is_its] for column in frames)
        which, subject = which[is_its], spans.method[spans.above[row]]
        took = np.diff(np.clip(found.edges[:, which], begin, end), axis=0)
        is_complete = found.is_complete[which]
        rest = took[4] + np.where(is_complete, took[0], 0)
        for kind, its in (
            (ENGINE_FRONT, np.where(is_complete, rest, took[0])),
            (ENGINE_QUEUE, took[1]),
            (ENGINE_PREFILL, took[2]),
            (ENGINE_DECODE, took[3]),
            (ENGINE, np.where(is_complete, 0, rest)),
        ):
            self._found.append((kind, request, subject, its))

    def _add_own(self, frames: _Frames, own: Any, before: Any, after: Any) -> None:
        """Add the time of proxies and executions in which nothing that they called ran."""
        self._add_engine(frames)
        spans, row = self._spans, frames.row
        ran = np.minimum(spans.start[row] + spans.loop_wait[row], frames.end)
        looped = np.clip(ran - frames.begin, 0, own)
        is_proxy, is_inner = (spans.is_server & ~spans.is_direct)[row], spans.is_inner[row]
        is_method = ~is_proxy & ~is_inner
        is_inner &= spans.generation[row] < 0
        before = np.where(is_method, np.maximum(before - looped, 0), 0)
        after = np.where(is_method, np.minimum(after, own - looped - before), 0)
        self._ran.append((spans.method[row[is_method]], (frames.end - frames.begin)[is_method]))
        for kind, which, took in (
            (PROXY, is_proxy, own),
            (LOOP, is_method, looped),
            (SPAN, is_inner, own),
            (CODE, is_method, own - looped - before - after),
            (BEFORE_ENGINE, is_method, before),
            (AFTER_ENGINE, is_method, after),
        ):
            self._found.append((kind, frames.request[which], spans.method[row[which]], took[which]))


def _back(frames: _Frames, at: Any, begin: Any, end: Any, is_part: Any) -> tuple[Any, Any]:
    """Go back in each frame from its end, through the calls that ended last.

    ``at`` is the place in ``frames`` of each call; calls are by that, and the last to end comes first. ``is_part`` is
    whether it is a span of the frame's own code. Returns the time of each frame that is in no call on the way, and the
    calls that are on it; ``end`` of these is then at most the begin of the next one.
    """
    time, own = frames.end.copy(), np.zeros(len(frames.row), np.int64)
    first = np.searchsorted(at, np.arange(len(time)))
    many = np.searchsorted(at, np.arange(len(time)), side="right") - first
    passed = []
    number, left = 0, np.nonzero(many)[0]
    while len(left):
        call = first[left] + number
        # Others were still running when the one after them began: they were not what was waited for.
        late = end[call] - time[left]
        before = time[left] - begin[call]
        is_next = (late <= np.clip(before, 0, LAG)) | (is_part[call] & (before > 0))
        frame, call = left[is_next], call[is_next]
        end[call] = np.minimum(end[call], time[frame])
        own[frame] += time[frame] - end[call]
        time[frame] = begin[call]
        passed.append(call)
        number += 1
        left = left[many[left] > number]
    return own + time - frames.begin, np.concatenate(passed) if passed else np.zeros(0, np.int64)


def _joined(several: list[_Frames]) -> _Frames:
    return _Frames(*(np.concatenate(columns) for columns in zip(*several, strict=True)))


def _routes(spans: ServeSpans, roots: Roots, durations: Any, is_failed: Any) -> list[Route]:
    is_handle = ~spans.is_server[roots.row]
    has_failed = is_failed[roots.row] | ((roots.replica >= 0) & is_failed[roots.replica])
    keys, which = np.unique(spans.subject[roots.row] * 2 + is_handle, return_inverse=True)
    rows, took, failed = split(which, len(keys), roots.row, durations, has_failed)
    found = [
        Route(
            *spans.named(int(key) // 2),
            bool(key % 2),
            as_array(own, "i"),
            as_array(np.sort(times), "q"),
            int(np.count_nonzero(fails)),
            int(own[np.argmax(times)]),
        )
        for key, own, times, fails in zip(keys.tolist(), rows, took, failed, strict=True)
    ]
    return sorted(found, key=lambda each: (-sum(each.durations), each.name))


def _methods(spans: ServeSpans, is_failed: Any, inside: Mapping[int, int]) -> list[Method]:
    table, found = spans.table, dict[int, Method]()

    def of(subject: int) -> Method:
        if subject not in found:
            found[subject] = Method(*spans.named(subject))
        return found[subject]

    state, ran = as_numpy(table.state), np.nonzero(spans.is_replica | spans.is_direct | spans.is_route)[0]
    ended = ran[state[ran] != RUNNING]
    replicas = [str(site.get(names.RAY_SERVE_REPLICA_ID) or "") for site in table.sites]
    for subject, rows in _by_method(spans, ended):
        method = of(subject)
        method.executions, method.failed = len(rows), int(np.count_nonzero(is_failed[rows]))
        lived = rows[state[rows] != LOST]
        method.durations = as_array(np.sort(spans.ends[lived] - spans.start[lived]), "q")
        method.in_requests = inside.get(subject, 0)
        method.replicas = len({replicas[site] for site in np.unique(spans.site[rows]).tolist()})
    begun = spans.called[spans.replica[spans.called] >= 0]
    for subject, rows in _by_method(spans, begun):
        waited = np.maximum(spans.start[spans.replica[rows]] - spans.start[rows], 0)
        method = of(subject)
        method.waited = as_array(np.sort(waited), "q")
        method.longest = rows[np.argsort(-waited, kind="stable")[:MOST_ROWS]].tolist()
    for subject, rows in _by_method(spans, spans.called[spans.replica[spans.called] < 0]):
        of(subject).failed += int(np.count_nonzero(is_failed[rows]))
    for subject, rows in _by_method(spans, np.nonzero(spans.is_batch)[0]):
        of(subject).batches = as_array(np.sort(spans.ends[rows] - spans.start[rows]), "q")
    return sorted(found.values(), key=lambda each: (-sum(each.durations), each.name))


def _by_method(spans: ServeSpans, rows: Any) -> list[tuple[int, Any]]:
    keys, which = np.unique(spans.method[rows], return_inverse=True)
    (found,) = split(which, len(keys), rows)
    return list(zip(keys.tolist(), found, strict=True))
