"""The operators of an execution: each has a span from its first work until it has completed, and what it submits is
below that.

The executor calls each operator of an execution in its own thread, and the operator makes all calls for its blocks. The
methods in :data:`_WORK` are wrapped on the operator itself, as long as the execution lasts: Ray 2.60
``data/_internal/execution/operators/``. Those that a class or a version of Ray does not have are left out.

How executions of datasets and iterations over them end, and which method of Ray Data the program called for them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial, update_wrapper
from types import FrameType
from typing import Any, NamedTuple

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._ray.data import statistics
from ray_tracing_hooks._ray.data.statistics import HeldBack, Timeline
from ray_tracing_hooks._ray.errors import cause, describe_users_error, fail
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import attach, detach
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import (
    class_name,
    hidden_frame,
    is_a,
    qualified_name,
    text_of,
    without_colours,
)
from ray_tracing_hooks._safety.guard import failed, guarded
from ray_tracing_hooks._safety.patching import ABSENT, Patches

FINISHED = "finished"
STOPPED = "stopped"
"""The consumer stopped before the end."""
FAILED = "failed"
CANCELLED = "cancelled"
ABANDONED = "abandoned"
"""The program ended, or disconnected from Ray, before the end."""


def outcome_of(error: BaseException | None, *, is_complete: bool) -> str:
    """The outcome of what ``error`` ended, if anything did."""
    if error is None or is_a(error, StopIteration, GeneratorExit):
        return FINISHED if is_complete else STOPPED
    if is_a(error, KeyboardInterrupt) or class_name(error) in {"TaskCancelledError", "CancelledError"}:
        return CANCELLED
    return FAILED


_ADVICE = re.compile(
    r"(?:\n|\\n|^)Failed to .+? after \d+/\d+ attempts \(total backoff [\d.]+s\)\..*DataContext.*", re.DOTALL
)
"""What Ray Data appends to the message of an error in a task: how often it tried, and how that is configured."""


def end_with(span: RecordedSpan, error: BaseException) -> None:
    """End a span with the error that ended an execution, as the user's function has raised it.

    To the messages of errors that are not of the user's function, Ray Data adds advice.
    """
    inner = cause(error)
    message = text_of(inner) or ""
    short = without_advice(message)
    if describe_users_error(span, error):
        span.end()
    elif message != short:
        kind = qualified_name(type(inner))
        span.fail_as(f"{kind}: {short}" if short else kind, without_colours(text_of(error) or ""))
        span.end()
    else:
        fail(span, error)


def without_advice(message: str) -> str:
    """The message of an error without what Ray Data has appended to it."""
    found = _ADVICE.search(message)
    if found is None:
        return message
    # That of a KeyError is quoted, with the advice in the quotes.
    quote = message[:1] if found.group().startswith("\\n") and message[:1] in "'\"" else ""
    return message[: found.start()] + quote


_LIBRARY, _OURS = "ray.data", f"{__name__.partition('.')[0]}."

_DECORATORS = "ray.data.exceptions"
"""The module whose decorators are around methods of any name (Ray 2.60 ``omit_traceback_stdout``)."""

_KNOWN_AS = {"start_epoch": "streaming_split", "gen_epochs": "streaming_split"}
"""What the program knows by another name."""


def consumer_in(frame: FrameType | None) -> str:
    """The outermost public function of Ray Data in a stack, without what called that; empty if there is none."""
    found = ""
    while frame is not None:
        module = frame.f_globals.get("__name__")
        module = module if isinstance(module, str) else ""
        if module.startswith(_LIBRARY):
            name = frame.f_code.co_name
            if module != _DECORATORS and name.isidentifier() and not name.startswith("_"):
                found = _KNOWN_AS.get(name, name)
        elif found and not module.startswith(_OURS):
            break
        frame = frame.f_back
    return found


_MOST_NAME = 200
"""Characters of an operator's name that are kept: that of a union contains those of all its inputs."""

NO_WORK = frozenset({"InputDataBuffer"})
"""Operators that only hold what is there already. ``stats()`` leaves them out too."""


def shown_name(name: Any) -> str:
    """The name of an operator as its spans show it, the same on both sides of its calls."""
    text = str(name)
    return text if len(text) <= _MOST_NAME else f"{text[: _MOST_NAME - 1]}…"


class OperatorContext(NamedTuple):
    """What the operators of an execution share."""

    dataset_id: str
    """Ray's id of the execution."""
    context: Context
    """The context of the execution."""
    executor: Callable[[], Any]
    """Returns Ray's executor; None if it is gone."""


class Operator:
    """One operator of an execution.

    Attributes:
        operator_id: Its name and position.
        span: Its span; None before its first work, and if it is not recorded.
        encoded: The encoded attribute of the spans of its calls.
        submitted: How many calls for its blocks it has made.
        actors: How many actors it has started.
    """

    def __init__(self, around: OperatorContext, op: Any, operator_id: str) -> None:
        self._around = around
        self.op = op
        self.operator_id = operator_id
        self.name = shown_name(op.name)
        self.inputs: list[Operator] = []
        self.span: RecordedSpan | None = None
        self.held_back = HeldBack(op, around.executor)
        self.timeline = Timeline(op, around.executor)
        self.encoded = encode.attribute(names.RAY_DATA_OPERATOR, self.name)
        self.submitted = 0
        self.actors = 0
        self._linked: list[Operator] = []
        self._context: Context | None = None

    def working(self, active: Tracing) -> Context:
        """The context of its work; the first time begins its span."""
        context = self._context
        if context is None:
            context = self._begin(active)
        return context

    def _begin(self, active: Tracing) -> Context:
        attributes = {
            names.RAY_DATA_DATASET_ID: self._around.dataset_id,
            names.RAY_DATA_OPERATOR: self.name,
            names.RAY_DATA_OPERATOR_ID: self.operator_id,
            names.RAY_DATA_OPERATOR_TYPE: type(self.op).__name__,
            **({names.RAY_DATA_INPUTS: [each.operator_id for each in self.inputs]} if self.inputs else {}),
            **statistics.of_plan(self.op),
        }
        # One of several inputs may begin only later.
        self._linked = [each for each in self.inputs if each.span is not None]
        links = b"".join(
            encode.link(each.span.trace_id, each.span.span_id, "", None, remote=False)
            for each in self._linked
            if each.span is not None
        )
        name = f"{self.name} {names.DATA_OPERATOR}"
        self._context, self.span = library_spans.begin(active, name, self._around.context, attributes, more=links)
        self.held_back.span = self.span
        return self._context

    def end(self, error: BaseException | None = None) -> None:
        """End its span, if it has begun and not ended; an ``error`` of its tasks failed the execution."""
        span = self.span
        if span is None or not span.is_recording():
            return
        with guarded("describing an operator of a dataset"):
            for each in self.inputs:
                if each.span is not None and each not in self._linked:
                    span.add_link(each.span.get_span_context())
            self.held_back.end()
            span.set_attributes(statistics.of_operator(self.op, self.submitted))
            if self.actors:
                span.set_attribute(names.RAY_DATA_ACTORS, self.actors)
            span.set_attributes(self.timeline.attributes())
        if error is not None:
            end_with(span, error)
        else:
            span.end()


_WORK = (
    # The interface of an operator: a bundle of blocks arrives, and no more will come.
    ("", "add_input"),
    ("", "input_done"),
    ("", "all_inputs_done"),
    # What its own callbacks call when a task or an actor is done.
    ("", "_try_schedule_tasks_internal"),
    ("", "_submit_sample_task"),
    ("", "_start_shuffle"),
    ("", "_try_finalize"),
    # Actors are also made before the execution begins, and when a pool grows.
    ("_actor_pool", "_create_actor_fn"),
    ("_aggregator_pool", "start"),
)
"""The methods that submit: the attribute of the operator that has it, empty for the operator itself, and its name."""


class _AtWork(threading.local):
    operator: Operator | None = None


at_work = _AtWork()
"""The operator that this thread works for."""


def watch(operator: Operator, patches: Patches) -> None:
    """Make what ``operator`` submits its own, until ``patches`` are undone."""
    for attribute, name in _WORK:
        owner = getattr(operator.op, attribute, None) if attribute else operator.op
        method = getattr(owner, name, None)
        if callable(method):
            patches.set(owner, name, _Working(operator, owner, name, method), back=vars(owner).get(name, ABSENT))


class _Working:
    """Takes the place of a method that submits, in the dictionary of one object.

    Ray pickles some of these objects, such as the pool of an old shuffle for its tasks. Copies have the plain method,
    and can be unpickled where this package is not.
    """

    def __init__(self, operator: Operator, owner: Any, name: str, method: Callable[..., Any]) -> None:
        self._operator, self._owner, self._name, self._method = operator, owner, name, method
        update_wrapper(self, method)

    def __reduce__(self) -> Any:
        is_of_class = hasattr(type(self._owner), self._name)
        return (getattr, (self._owner, self._name)) if is_of_class else (partial, (self._method,))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        active = tracing.active
        if active is None:
            return self._method(*args, **kwargs)
        before = at_work.operator
        try:
            token = attach(self._operator.working(active))
        except Exception as error:  # noqa: BLE001  the execution must continue whatever fails here
            failed("tracing an operator of a dataset", error)
            return self._method(*args, **kwargs)
        at_work.operator = self._operator
        try:
            with hidden_frame:
                return self._method(*args, **kwargs)
        finally:
            at_work.operator = before
            detach(token)
