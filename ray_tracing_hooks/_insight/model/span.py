"""Spans as objects, and the trees that they form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ray_tracing_hooks import names

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5
KIND_NAMES = {
    INTERNAL: "INTERNAL",
    SERVER: "SERVER",
    CLIENT: "CLIENT",
    PRODUCER: "PRODUCER",
    CONSUMER: "CONSUMER",
}
STATUS_UNSET, STATUS_OK, STATUS_ERROR = 0, 1, 2
STATUS_NAMES = {STATUS_OK: "OK", STATUS_ERROR: "ERROR"}

State = Literal["ended", "running", "lost"]


class Event(NamedTuple):
    """Something that happened in a span. The time is in nanoseconds since the epoch."""

    name: str
    time_ns: int
    attributes: dict[str, Any]


class Link(NamedTuple):
    """A link to another span; ids in hex."""

    trace_id: str
    span_id: str
    attributes: dict[str, Any]


@dataclass(slots=True)
class Span:
    """One span. Ids are lower-case hex, times nanoseconds since the epoch by the clock of the span's node."""

    trace_id: str
    span_id: str
    parent_id: str
    """Empty for a span without a parent."""
    name: str
    kind: int
    """As in OTLP: one of the constants of this module, 0 if unspecified."""
    start_ns: int
    end_ns: int
    """0 if no end is known."""
    status_code: int
    """As in OTLP: 2 is an error."""
    status_message: str
    attributes: dict[str, Any]
    events: list[Event]
    links: list[Link]
    resource: dict[str, Any]
    """The attributes of the Resource; spans of the same resource share the dictionary."""
    scope: str
    """The name of the instrumentation scope."""
    state: State
    """``running``: its process is alive and has not ended it; ``lost``: its process died before it ended."""

    @property
    def failed(self) -> bool:
        """Whether its status is an error, or its process died before it ended."""
        return self.status_code == STATUS_ERROR or self.state == "lost"

    @property
    def never_ended(self) -> bool:
        """Whether its program never ended it. Its end is then the end of its process, and not an error."""
        return bool(self.attributes.get(names.RAY_NEVER_ENDED))

    def duration_ns(self, now_ns: int) -> int | None:
        """How long it took, for a running span until ``now_ns``; None for a lost span whose end is unknown, and for
        one that was never ended.
        """
        if self.never_ended:
            return None
        if self.end_ns:
            return max(0, self.end_ns - self.start_ns)
        return max(0, now_ns - self.start_ns) if self.state == "running" else None


@dataclass(slots=True)
class Node:
    """A span and its children, by start."""

    span: Span
    children: list[Node] = field(default_factory=list)
    executed: bool = False
    """For a submission: whether the call has an execution, even if that is not among the children."""


@dataclass(slots=True)
class Trace:
    """All spans of one trace id."""

    trace_id: str
    roots: list[Node]
    """By start: the spans without a parent, and the orphans, whose parent was not read."""
    size: int
    """How many spans the trace has; a selection keeps this number and the following of the whole trace."""
    orphans: int
    continuing: int
    """The orphans that are requests to a server: their parent is the client's span."""
    of_open_drivers: int
    """The orphans below a span of their driver, which is stored when it ends."""

    @property
    def start_ns(self) -> int:
        return self.roots[0].span.start_ns

    def nodes(self) -> Iterator[Node]:
        """Every span, parents before their children."""
        return walk(self.roots)


def walk(roots: Iterable[Node]) -> Iterator[Node]:
    """``roots`` and all their descendants, in the order of a printed tree: parents before their children."""
    pending = list(roots)[::-1]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(node.children))


def traces(spans: Iterable[Span]) -> list[Trace]:
    """The traces that the spans form, the newest first.

    Each pair of trace id and span id must be unique. If parents form a cycle, which only damaged or forged data has,
    the first span of the cycle becomes a root.
    """
    by_trace: dict[str, dict[str, Node]] = {}
    for span in spans:
        by_trace.setdefault(span.trace_id, {})[span.span_id] = Node(span)
    found = [_trace(trace_id, nodes) for trace_id, nodes in by_trace.items()]
    found.sort(key=lambda trace: (trace.start_ns, trace.trace_id), reverse=True)
    return found


def _trace(trace_id: str, nodes: dict[str, Node]) -> Trace:
    roots: list[Node] = []
    orphans = 0
    ordered = sorted(nodes.values(), key=_by_start)
    for node in ordered:
        parent = nodes.get(node.span.parent_id)
        if parent is not None:
            parent.children.append(node)
            parent.executed |= node.span.kind == CONSUMER
        else:
            roots.append(node)
            orphans += bool(node.span.parent_id)
    reached = {node.span.span_id for node in walk(roots)}
    for node in ordered:
        if node.span.span_id not in reached:
            nodes[node.span.parent_id].children.remove(node)
            roots.append(node)
            orphans += 1
            reached.update(below.span.span_id for below in walk([node]))
    roots.sort(key=_by_start)
    orphaned = [root.span for root in roots if root.span.parent_id and root.span.parent_id not in nodes]
    requests = sum(span.kind == SERVER for span in orphaned)
    of_drivers = {
        span.parent_id
        for span in orphaned
        if span.kind == PRODUCER and is_driver(str(span.attributes.get(names.RAY_PARENT_TASK_ID, "")))
    }
    below = sum(span.parent_id in of_drivers for span in orphaned if span.kind != SERVER)
    return Trace(trace_id, roots, len(nodes), orphans, requests, below)


def is_driver(task_id: str) -> bool:
    """Whether this is the task id of a driver (``TaskID::ForDriverTask`` in Ray 2.60 ``src/ray/common/id.cc``)."""
    return task_id.startswith(_DRIVER_TASK)


_DRIVER_TASK = "f" * 40


def _by_start(node: Node) -> tuple[int, str]:
    return node.span.start_ns, node.span.span_id
