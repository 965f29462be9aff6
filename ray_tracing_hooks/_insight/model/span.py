"""Spans as objects."""

from __future__ import annotations

from dataclasses import dataclass
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
        """Whether its program never ended it. Then it ends with its process, which is not an error."""
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


def is_driver(task_id: str) -> bool:
    """Whether this is the task id of a driver (``TaskID::ForDriverTask`` in Ray 2.60 ``src/ray/common/id.cc``)."""
    return task_id.startswith(_DRIVER_TASK)


_DRIVER_TASK = "f" * 40
