"""LLM engines: their generations by model, replica and operator, and where the time to the first chunk went.

The first chunk of a streamed request to Ray Serve is followed on its way there and back. Each part lasts until the next
one begins, so they add up. Where clocks seem to differ, a part is at least nothing.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.pipelines import Pipelines
from ray_tracing_hooks._insight.analysis.requests import LEAST_FOR_SLOWEST, SLOWEST
from ray_tracing_hooks._insight.model.generations import Generations
from ray_tracing_hooks._insight.model.grouped import split
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.serve_spans import ServeSpans
from ray_tracing_hooks._insight.model.span import nanoseconds, number
from ray_tracing_hooks._insight.model.table import Table

HELD = "batcher"
ENGINE_PART = "engine"
FIRST_PARTS = {
    "proxy": "Serve: proxy, and the way to a replica",
    "ingress": "Serve: ingress, until it calls the server",
    "replica choice": "Serve: choice of a replica, and the way to it",
    "before engine": "Serve: server, until the engine has the request",
    "engine front end": "engine: front end, until it is queued",
    "engine queue": "engine: queue",
    "engine prefill": "engine: prefill",
    "engine output": "engine: first token, until its front end has it",
    "after engine": "Serve: server, until it has the first chunk",
    HELD: "Serve LLM: the batcher holds it",
    "way back": "Serve: back to the proxy",
    ENGINE_PART: "engine, which told no more of it",
}
"""The parts of the time to the first chunk, in their order, and their meaning. The last one stands for those of the
engine where it did not tell them."""
_OF_ENGINE = slice(4, 8)
_MOST_CALLS = 64
"""Of deployments in each other, until the one with the engine."""


@dataclass
class FirstPart:
    """A part of the time to the first chunk. Times are nanoseconds, added up over requests."""

    kind: str
    time: int
    slow_time: int
    """The same in the slowest requests alone."""
    median: int
    """Of one request."""


@dataclass
class FirstChunks:
    """The streamed requests to a model in a deployment."""

    name: str
    application: str
    model: str
    times: array[int]
    """Until the first chunk of each, sorted; in nanoseconds."""
    parts: list[FirstPart]
    slow: int
    """How many are the slowest; 0 if there are too few to look at these on their own."""
    slowest: int
    """The row of the one whose first chunk came last."""

    @property
    def time(self) -> int:
        return sum(self.times)

    @property
    def slow_time(self) -> int:
        return sum(each.slow_time for each in self.parts)


@dataclass
class Generated:
    """The generations of a model, in one process or in all. Lists of nanoseconds are sorted."""

    model: str
    is_leg: bool
    """Whether they are prefills for another engine, whose own generations count the tokens."""
    replica: str
    """The id of a replica of Ray Serve, or the process; empty for all."""
    rows: Any
    failed: int
    aborted: int
    input: int
    output: int
    cached: int
    """Tokens."""
    first: array[int]
    """Until the front end had the first token."""
    per_token: array[int]
    """For each token after that."""
    queue: array[int]
    replicas: list[Generated] = field(default_factory=list)
    """Those of each process, the one with most generations first."""

    @property
    def count(self) -> int:
        return len(self.rows)


@dataclass
class Engines:
    """What LLM engines did in a run."""

    models: list[Generated]
    """The one with most generations first."""
    first_chunks: list[FirstChunks]
    """The one with most requests first."""
    unread: int
    """Of how many generations no figures were read, since there are so many."""


def engines(found: Generations, spans: ServeSpans | None, is_failed: Any) -> Engines:
    """What the generations of a run say. ``is_failed`` is a NumPy column over all rows."""
    table = found.table
    numbers: dict[tuple[str, bool], int] = {}
    keys = zip(found.model, found.is_leg.tolist(), strict=True)
    number = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    process = as_numpy(table.resource)[found.row]
    models = []
    for one in numbers.values():
        which = number == one
        model = _generated(found, which, is_failed, "")
        model.replicas = sorted(
            (
                _generated(found, which & (process == each), is_failed, _process(table, spans, found, process == each))
                for each in np.unique(process[which]).tolist()
            ),
            key=lambda each: (-each.count, each.replica),
        )
        models.append(model)
    models.sort(key=lambda each: (-each.count, each.model))
    chunks = _first_chunks(found, spans) if spans is not None else []
    return Engines(models, chunks, int(np.count_nonzero(~found.is_read)))


def _process(table: Table, spans: ServeSpans | None, found: Generations, which: Any) -> str:
    row = int(found.row[which][0])
    above = spans.around(row) if spans is not None else -1
    replica = table.sites[table.site[above]].get(names.RAY_SERVE_REPLICA_ID) if above >= 0 else None
    resource = table.resources[table.resource[row]]
    return str(replica or f"{resource.get('host.name', '')}:{resource.get('process.pid', '')}")


def _generated(found: Generations, which: Any, is_failed: Any, replica: str) -> Generated:
    rows, place = found.row[which], int(np.argmax(which))
    tokens_in, tokens_out, cached = (sum(each[which].tolist()) for each in (found.input, found.output, found.cached))
    others = np.where(found.choices == 1, found.output - 1, 0)
    timed = which & (others > 0) & (found.decode >= 0)
    return Generated(
        found.model[place],
        bool(found.is_leg[place]),
        replica,
        rows,
        int(np.count_nonzero(is_failed[rows])),
        int(np.count_nonzero(found.is_aborted[which])),
        tokens_in,
        tokens_out,
        cached,
        _sorted(found.first[which & (found.first >= 0)]),
        _sorted(found.decode[timed] // others[timed]),
        _sorted(found.queue[which & (found.queue >= 0)]),
    )


def _sorted(times: Any) -> array[int]:
    return as_array(np.sort(times), "q")


def _first_chunks(found: Generations, spans: ServeSpans) -> list[FirstChunks]:
    roots, size = spans.roots(), len(spans.start)
    begin = np.full(size, -1)
    begin[roots.row] = roots.begin
    streamed = np.nonzero(found.may_be_streamed & found.is_read & ~found.is_leg & (spans.above[found.row] >= 0))[0]
    server = spans.above[found.row[streamed]]
    root, replica = server, server  # of the request, and the first replica that it reached
    for _ in range(_MOST_CALLS):
        goes_on = (begin[root] < 0) & (spans.above[root] >= 0)
        if not goes_on.any():
            break
        replica = np.where(goes_on, root, replica)
        root = np.where(goes_on, spans.above[root], root)
    is_request = (begin[root] >= 0) & spans.is_server[root]
    streamed, server, root, replica = (each[is_request] for each in (streamed, server, root, replica))
    # Of several prompts the one whose first token came first.
    order = np.lexsort((spans.start[found.row[streamed]] + np.maximum(found.first[streamed], 0), root))
    order = order[np.insert(np.diff(root[order]) != 0, 0, values=True)[: len(order)]]
    streamed, server, root, replica = (each[order] for each in (streamed, server, root, replica))
    chunk, item, held, is_stream = _stream_times(found.table, root, server)
    came = (chunk > 0) & (spans.ends[root] > spans.start[root]) & (found.is_streamed[streamed] | is_stream)
    columns = streamed, server, root, replica, begin[root], chunk, item, held
    streamed, server, root, replica, begin, chunk, item, held = (each[came] for each in columns)
    parent, edges = as_numpy(found.table.parent), found.edges[:, streamed]
    # No time, however damaged, is after the end of its span.
    end = spans.start[root] + np.minimum(chunk, spans.ends[root] - spans.start[root])
    item = np.minimum(item, spans.ends[server] - spans.start[server])
    first_item = np.where(item >= 0, spans.start[server] + item, -1)
    handed = np.where(item >= 0, first_item - np.maximum(held, 0), -1)
    token = np.where(found.first[streamed] >= 0, edges[0] + found.first[streamed], handed)
    called = np.where(server == replica, spans.start[server], spans.start[parent[server]])
    marks = [begin, spans.start[replica], called, spans.start[server], *edges[:4], token, handed, first_item, end]
    took = np.diff(np.minimum(np.maximum.accumulate(np.array(marks), axis=0), end), axis=0)
    # Without a proxy, what was before the replica is its choice.
    is_direct = spans.is_direct[root]
    took[2] += np.where(is_direct, took[0], 0)
    took[0] = np.where(is_direct, 0, took[0])
    is_recorded = found.is_complete[streamed]
    took = np.concatenate([took, np.where(is_recorded, 0, took[_OF_ENGINE].sum(axis=0))[None, :]])
    took[_OF_ENGINE] = np.where(is_recorded, took[_OF_ENGINE], 0)
    named = [spans.named(each) for each in spans.method[server].tolist()]
    keys = [
        (name.rpartition(".")[0], application, found.model[place])
        for (name, application), place in zip(named, streamed.tolist(), strict=True)
    ]
    numbers: dict[tuple[str, str, str], int] = {}
    which = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    several = split(which, len(numbers), np.arange(len(keys)))[0] if numbers else []
    chunks = [_of_one(key, took[:, its], root[its]) for key, its in zip(numbers, several, strict=True)]
    return sorted(chunks, key=lambda each: (-len(each.times), each.name, each.model))


def _stream_times(table: Table, root: Any, server: Any) -> tuple[Any, Any, Any, Any]:
    """The time to the first chunk of each request, and of its server the time to the first item, how long that was
    held, and whether there were several items. Times are -1 if not recorded.
    """
    keys = names.RAY_SERVE_FIRST_CHUNK, names.RAY_SERVE_FIRST_ITEM, names.RAY_LLM_CHUNK_HELD
    times_of: dict[int, tuple[int, ...]] = {}
    for row in table.as_recorded({*root.tolist(), *server.tolist()}):
        given = table.span(row).attributes
        times = (max(0, nanoseconds(given[key])) if key in given else -1 for key in keys)
        times_of[row] = (*times, number(given.get(names.RAY_SERVE_ITEMS)))
    of_root, of_server = (
        np.array([times_of[row] for row in rows.tolist()], np.int64).reshape(-1, 4).T for rows in (root, server)
    )
    return of_root[0], of_server[1], of_server[2], of_server[3] > 1


def _of_one(key: tuple[str, str, str], took: Any, root: Any) -> FirstChunks:
    times = took.sum(axis=0)
    is_slow = np.zeros(len(times), bool)
    if len(times) >= LEAST_FOR_SLOWEST:
        is_slow[np.argsort(-times, kind="stable")[: round(len(times) * SLOWEST)]] = True
    parts = [
        FirstPart(kind, sum(its.tolist()), sum(its[is_slow].tolist()), percentile(np.sort(its).tolist(), 0.5))
        for kind, its in zip(FIRST_PARTS, took, strict=True)
        if its.any()
    ]
    slow = int(np.count_nonzero(is_slow))
    return FirstChunks(*key, _sorted(times), parts, slow, int(root[np.argmax(times)]))


_PER_OCTAVE = 8
"""Buckets of times, as in the attributes."""


@dataclass
class Generating:
    """The generations of one operator."""

    row: int
    name: str
    count: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    """Tokens."""
    time: int = 0
    """Nanoseconds from its first task with generations to the end of the last."""
    first: Counter[int] = field(default_factory=Counter)
    """How many had each time to the first chunk, by bucket."""
    queue: Counter[int] = field(default_factory=Counter)
    """The same of the time in the engine's queue."""

    @property
    def per_second(self) -> float:
        """Tokens that were generated each second."""
        return self.output * 1e9 / self.time if self.time else 0.0


def percentile_of(buckets: Counter[int], share: float) -> int | None:
    """The percentile of times in buckets, in nanoseconds, exact to about 5 %; None without any."""
    wanted = share * buckets.total()
    ordered = sorted(buckets)
    reached = zip(ordered, accumulate(buckets[each] for each in ordered), strict=True)
    return next((round(1000 * 2 ** ((each + 0.5) / _PER_OCTAVE)) for each, sofar in reached if sofar >= wanted), None)


def generating_operators(table: Table, pipelines: Pipelines) -> list[Generating]:
    """Those of all executions of datasets, the one with most tokens first."""
    found = []
    for operator in (each for execution in pipelines.executions for each in execution.operators):
        one = Generating(operator.row, operator.name)
        rows = []
        for row in table.as_recorded(operator.executions):
            attributes = table.span(row).attributes
            if count := number(attributes.get(names.RAY_LLM_GENERATIONS)):
                rows.append(row)
                one.count += count
                one.input += number(attributes.get(names.RAY_LLM_TOTAL_INPUT))
                one.output += number(attributes.get(names.RAY_LLM_TOTAL_OUTPUT))
                one.cached += number(attributes.get(names.RAY_LLM_TOTAL_CACHED))
                one.first.update(_pairs(attributes.get(names.RAY_LLM_FIRST_BUCKETS)))
                one.queue.update(_pairs(attributes.get(names.RAY_LLM_QUEUE_BUCKETS)))
        if rows:
            one.time = max(map(table.end_or_now, rows)) - min(table.start[row] for row in rows)
            found.append(one)
    return sorted(found, key=lambda each: (-each.output, each.row))


def _pairs(flat: Any) -> Counter[int]:
    """From ``[bucket, count, ...]``; nothing if it is something else. No time is longer than a century."""
    if (
        not isinstance(flat, (list, tuple))
        or len(flat) % 2
        or not all(type(each) is int and each >= 0 for each in flat)
    ):
        return Counter()
    return Counter({bucket: count for bucket, count in zip(flat[::2], flat[1::2], strict=True) if bucket < 500})
