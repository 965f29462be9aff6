"""Spans as objects, and what their names, attributes and errors say."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._safety.exceptions import users_error, without_colours

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5
HIDDEN = "***"
"""The text that replaces a redacted value."""
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
    trace_state: str = ""


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
    trace_state: str = ""
    flags: int = 0
    dropped: tuple[int, int, int] = (0, 0, 0)
    """How many attributes, events and links the program that recorded it had to drop."""
    scope_version: str = ""
    scope_attributes: dict[str, Any] = field(default_factory=dict)

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


_FROM_USERS = "UserCodeException)"
"""How the types of errors end that Ray Data has raised from one of the user's function, as callers get them."""

_DIED = frozenset({names.WORKER_DIED, names.DRIVER_DIED})

_ADVICE = re.compile(r"(\\n)?Failed to .+ after \d+/\d+ attempts \(total backoff .*")
"""What Ray Data appends to the message of an error in a task, in quotes if the class of the error quotes it."""


def error_type(span: Span) -> str:
    """The class of the error that ended the span; empty if it is not recorded."""
    return _users_error(span).partition(":")[0] or _recorded_type(span)


def _recorded_type(span: Span) -> str:
    given = span.attributes.get(names.ERROR_TYPE) or _exception(span).get(names.EXCEPTION_TYPE)
    return str(given or "")


def _users_error(span: Span) -> str:
    """The error of the user's function that Ray Data has raised the error of this span from; empty for another one."""
    is_of_data = _recorded_type(span).endswith(_FROM_USERS)
    return users_error(without_colours(_message(span))).partition("\n")[0] if is_of_data else ""


def _message(span: Span) -> str:
    return str(_exception(span).get(names.EXCEPTION_MESSAGE) or span.status_message)


def error_text(span: Span) -> str:
    """Type and message of the error that ended the span, on one line; empty if it did not fail."""
    if not span.failed:
        return ""
    if span.state == "lost":
        return span.status_message or "it never ended: its process died, or its end was not recorded"
    if error_type(span) in _DIED and span.status_message:
        return span.status_message  # the cause; the exception is a SystemExit, whose message is the exit code
    if users := _users_error(span):
        return users
    lines = [line for line in without_colours(_message(span)).splitlines() if line.strip()]
    # The text of a remote error in Ray is the remote traceback, with the message at its end.
    text = lines[-1 if lines[0].startswith("ray::") else 0].strip() if lines else ""
    text = _ADVICE.sub(_closed, text)
    kind = error_type(span)
    if kind and kind.rpartition(".")[2] not in text.partition(":")[0]:
        text = f"{kind}: {text}" if text else kind
    return text or "failed"


def _closed(advice: re.Match[str]) -> str:
    """What to put in its place: the end of the quotes in which it is."""
    return advice.string[0] if advice[1] and advice.string[0] in "'\"" else ""


def was_stopped(span: Span) -> bool:
    """Whether it is a task of an operator that Ray Data cancelled, since it needed no more of its blocks.

    Nothing failed in it. If its dataset failed, the operator that failed says so.
    """
    is_task = span.kind == CONSUMER and names.RAY_DATA_OPERATOR in span.attributes
    return is_task and span.failed and error_type(span) == names.TASK_CANCELLED


def _exception(span: Span) -> dict[str, Any]:
    for event in span.events[::-1]:
        if event.name == "exception":
            return event.attributes
    return {}


MOST_NAMES = 8
"""Names per function. With more names, or if few are used twice, each call probably has its own name."""


QUEUE = "_QueueActor."
"""How the methods of the actor of a ``ray.util.queue.Queue`` begin. ``get`` and ``put`` wait for each other."""


def are_few(different: int, calls: int) -> bool:
    """Whether the names given to a function's calls are few enough to group the calls by them."""
    return different <= MOST_NAMES and calls >= 2 * different


def is_creation(function: str) -> bool:
    """Whether the calls of this function create an actor: it is the constructor of a class."""
    return function.endswith(".__init__")


def call_name(span_name: str) -> str:
    """The function in the name of a submission or execution; any other name unchanged."""
    for named in (names.submission_name(""), names.execution_name("")):
        if span_name.endswith(named):
            return span_name[: -len(named)]
    return span_name


_LIMIT = float(1 << 63)


def whole(value: object) -> int | None:
    """The value of an attribute if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def nanoseconds(seconds: object) -> int:
    """The value of an attribute in seconds, as nanoseconds; 0 if it is not a number, or more than 64 bits can hold."""
    if not isinstance(seconds, (int, float)) or not abs(seconds) < _LIMIT:
        return 0
    found = seconds * 1e9
    return round(found) if abs(found) < _LIMIT else 0


_MOST = 1 << 40
"""No number of things is larger."""


def number(value: object) -> int:
    """The value of an attribute that counts something; 0 if it is none, negative or impossibly large."""
    found = whole(value)
    return found if found is not None and 0 <= found < _MOST else 0
