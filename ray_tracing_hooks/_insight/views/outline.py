"""Turns the tree of a trace's spans into an outline for people: fewer lines with the same content.

The submission and the execution of a call become one item, unwanted spans are left out, and equal siblings are grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.grouped import split
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.span import (
    CONSUMER,
    PRODUCER,
    SERVER,
    Span,
    are_few,
    call_name,
    error_type,
    is_driver,
)
from ray_tracing_hooks._insight.model.table import Table


class Trace:
    """The spans of a trace, or those of them that were selected, with their ancestors."""

    def __init__(self, table: Table, rows: Sequence[int], size: int) -> None:
        """``rows``: those of the spans, by start. ``size``: how many spans the whole trace has."""
        self.table, self.rows, self.size = table, rows, size
        self.trace_id = table.trace_id_of(rows[0])
        self.start_ns: int = table.start[rows[0]]
        self.roots = [row for row in rows if table.parent[row] < 0]

    @cached_property
    def spans(self) -> dict[int, Span]:
        """All spans by their rows. They are read from their files."""
        return {row: self.table.span(row) for row in self.table.as_recorded(self.rows)}

    @cached_property
    def orphans(self) -> list[Span]:
        """The spans without a parent among those that were read, although they name one."""
        return [self.spans[root] for root in self.roots if self.spans[root].parent_id]

    @property
    def continuing(self) -> int:
        """How many orphans are requests to a server: their parent is the client's span."""
        return sum(span.kind == SERVER for span in self.orphans)

    @property
    def of_open_drivers(self) -> int:
        """How many orphans are below a span of their driver, which is stored when it ends."""
        of_drivers = {
            span.parent_id
            for span in self.orphans
            if span.kind == PRODUCER and is_driver(str(span.attributes.get(names.RAY_PARENT_TASK_ID, "")))
        }
        return sum(span.parent_id in of_drivers for span in self.orphans if span.kind != SERVER)

    def children(self, row: int) -> list[int]:
        """The rows of the selected children of a span, by start."""
        return [child for child in self.table.children(row) if child in self.spans]

    def is_executed(self, row: int) -> bool:
        """Whether the call of this submission has an execution, even if that is not selected."""
        return any(self.table.kind[child] == CONSUMER for child in self.table.children(row))

    def walk(self) -> Iterator[int]:
        """All rows in the order of a printed tree: parents before their children."""
        pending = self.roots[::-1]
        while pending:
            row = pending.pop()
            yield row
            pending.extend(reversed(self.children(row)))

    def selected(self, keep: Callable[[int], bool]) -> Trace | None:
        """The spans whose rows ``keep`` wants, with their ancestors; None if it wants none."""
        kept: set[int] = set()
        for row in filter(keep, self.rows):
            here = row
            while here >= 0 and here not in kept:
                kept.add(here)
                here = self.table.parent[here]
        return Trace(self.table, sorted(kept), self.size) if kept else None


def traces(table: Table) -> list[Trace]:
    """The traces of a table, the newest first."""
    (rows,) = split(as_numpy(table.trace).astype(np.int64), len(table.traces), np.arange(len(table)))
    found = [Trace(table, own.tolist(), len(own)) for own in rows if len(own)]
    return sorted(found, key=lambda trace: (trace.start_ns, trace.trace_id), reverse=True)


@dataclass(slots=True)
class Item:
    """One line of an outline: a span, or the execution of a call together with its submission."""

    span: Span
    submission: Span | None
    children: list[Item]
    is_unexecuted: bool = False
    """Whether it is a successful submission without a recorded execution."""
    shape: int = 0
    """The same for items with equal names, outcomes and children. Tasks of operators only need equal kinds of these."""

    @property
    def name(self) -> str:
        """The span's name; for a call that is one item, the name of the function."""
        return self.span.name if self.submission is None else call_name(self.span.name)

    @property
    def given_name(self) -> str:
        """The name that ``.options(name=...)`` gave the call; empty if none, or if it is the function's own name."""
        spans = (self.span, self.submission)
        given = next((str(name) for span in spans if span and (name := span.attributes.get(names.RAY_NAME))), "")
        function = call_name(self.span.name)
        return "" if given in (function, function.rpartition(".")[2]) else given

    @property
    def stage(self) -> str:
        """Which step of an operator with several it runs; empty if it has one or is no task of an operator."""
        return str(self.span.attributes.get(names.RAY_DATA_STAGE, ""))

    @property
    def attempt(self) -> int:
        """The number of this retry, or of this actor restart; 0 for the first attempt."""
        found = self.span.attributes.get(names.RAY_ATTEMPT)
        return found if isinstance(found, int) else 0

    @property
    def queued_ns(self) -> int | None:
        """From the end of the submission to the start of the execution; None if one of them is missing.

        Never negative, although an execution may start before ``.remote()`` has returned, and clocks of nodes differ.
        """
        return None if self.submission is None else max(0, self.span.start_ns - self.submission.end_ns)


def outline(trace: Trace, *, pair: bool = True) -> list[Item]:
    """The items of a trace. With ``pair``, a submission and the execution that is its only child become one item."""
    made: dict[int, Item] = {}
    shapes: dict[object, int] = {}
    # Children first, without recursion: a chain of calls may be deeper than Python's stack.
    for row in reversed(list(trace.walk())):
        span, children = trace.spans[row], [made.pop(child) for child in trace.children(row)]
        if pair and len(children) == 1 and _is_call(span, children[0]):
            item = children[0]
            item.submission = span
        else:
            item = Item(span, None, children, _is_unexecuted(span) and not trace.is_executed(row))
        item.shape = shapes.setdefault(_outcome(item), len(shapes))
        made[row] = item
    return [made[root] for root in trace.roots]


def groups(items: Iterable[Item], *, collapse: bool = True) -> list[list[Item]]:
    """Groups of equal items, in the order of their first items; without ``collapse``, each item alone.

    Items with a few names from ``.options(name=...)`` have a group for each name; with many names, one for all.
    """
    if not collapse:
        return [[item] for item in items]
    found: dict[int, list[Item]] = {}
    for item in items:
        found.setdefault(item.shape, []).append(item)
    return [named for group in found.values() for named in _by_name(group)]


def _by_name(group: list[Item]) -> list[list[Item]]:
    found: dict[str, list[Item]] = {}
    for item in group:
        found.setdefault(item.given_name, []).append(item)
    return list(found.values()) if are_few(len(found), len(group)) else [group]


def _is_call(span: Span, below: Item) -> bool:
    return (
        span.kind == PRODUCER
        and below.span.kind == CONSUMER
        and below.submission is None
        and not span.failed
        and span.state == "ended"
        and _within_functions(call_name(span.name)) == _within_functions(call_name(below.span.name))
    )


def _within_functions(function: str) -> str:
    """The name without the functions around it, which Ray's own tracing leaves out where methods of actors run."""
    return function.rpartition("<locals>.")[2]


def _is_unexecuted(span: Span) -> bool:
    is_submission = span.kind == PRODUCER and span.name.endswith(names.submission_name(""))
    return is_submission and not span.failed and span.state == "ended"


def _outcome(item: Item) -> object:
    span = item.span
    error = error_type(span) if span.failed else None
    name = item.name
    children = [child.shape for child in item.children]
    if names.RAY_DATA_OPERATOR in span.attributes:
        # Tasks for blocks differ in how often the user's function ran.
        children = list(set(children))
        name = f"{name} {item.stage}"
    how = span.state, span.never_ended, error, span.failed, item.attempt, item.is_unexecuted
    return name, span.kind, how, item.submission is None, tuple(sorted(children))
