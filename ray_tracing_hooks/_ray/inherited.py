"""Tasks that carry nothing: their submissions are spans of the driver, in the trace that it has told for its job."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import resources
from ray_tracing_hooks._ray.cluster import JobTrace
from ray_tracing_hooks._ray.tracing import (
    ACTOR_ID,
    CONSUMER,
    TASK_ID,
    TASK_KEY,
    Tracing,
    caller_attribute,
    unrecorded_span,
)
from ray_tracing_hooks._record import ids, wire
from ray_tracing_hooks._record.current import SPAN_KEY
from ray_tracing_hooks._record.recorder import SAMPLED, after_id, before_id
from ray_tracing_hooks._record.span import Parent, RecordedSpan

_start_time = struct.Struct("<cQ").pack
_time_ns = time.time_ns
_NO_SPAN = bytes(8)

Begun = tuple[Context, RecordedSpan | None]
"""The context that a task runs in, and its span, if it has one."""


class Inherited:
    """How the tasks of one function or method begin that carry nothing. Only to be asked where one is running."""

    __slots__ = (
        "_active",
        "_after",
        "_attempt",
        "_before",
        "_flags",
        "_is_method",
        "_mask",
        "_of_caller",
        "_of_template",
        "_recorder",
        "_sampler",
        "_span_flags",
        "_task_id",
        "_template",
        "_trace_id",
        "_unsampled",
    )

    def __init__(
        self, active: Tracing, job: JobTrace, class_name: str, name: str, module: str, group: str = ""
    ) -> None:
        recorder = active.recorder
        core_worker = active.process.worker.core_worker
        self._active, self._sampler = active, recorder.sampler
        self._task_id = core_worker.get_current_task_id
        self._attempt = core_worker.get_current_task_attempt_number
        self._trace_id, root_span_id, self._flags, driver = job
        self._template = active.template(CONSUMER, class_name, name, module, group)
        sampled = self._sampler.child(bool(self._flags & SAMPLED), self._trace_id)
        self._span_flags = self._flags & ~SAMPLED | sampled
        self._recorder = recorder.of(self._span_flags)
        self._mask = ids.mask_of_trace(self._trace_id)
        self._is_method = bool(class_name)
        # What is the same in the encoded spans of all these tasks.
        self._before = before_id(self._trace_id)
        self._after = after_id(self._parent(_NO_SPAN)).partition(_NO_SPAN)
        self._of_template = (self._template.body if self._template is not None else b"") + TASK_ID
        self._of_caller = caller_attribute(driver)
        self._unsampled: Begun | None = None
        if self._recorder is None and not self._flags & SAMPLED:
            # What is not recorded need not know its parent.
            self._unsampled = Context({SPAN_KEY: unrecorded_span(self._parent(root_span_id))}), None

    def is_of(self, active: Tracing) -> bool:
        """Whether this still holds."""
        sampler = self._sampler
        return self._active is active and sampler is active.recorder.sampler and sampler.is_constant

    def begin(self, more: Callable[[], bytes] | None = None) -> Begun:
        """Begin the task that is running in this thread or coroutine; ``more`` makes further encoded attributes."""
        if self._unsampled is not None:
            return self._unsampled
        task_id = self._task_id().binary()
        parent_id = ids.span_id_of_task(task_id, self._mask)
        template, recorder = self._template, self._recorder
        if template is None or recorder is None:
            return Context({SPAN_KEY: unrecorded_span(self._parent(parent_id)), TASK_KEY: task_id}), None
        start = _time_ns()
        hex_id = task_id.hex().encode()
        before_parent, _, after_parent = self._after
        head = b"".join(
            (
                self._before,
                ids.new_span_id(),
                before_parent,
                parent_id,
                after_parent,
                _start_time(b"\x39", start),
                self._of_template,
                hex_id,
                self._of_caller,
            )
        )
        if self._is_method:
            head += ACTOR_ID + hex_id[16:]  # a task id names its actor, see ActorID in id.h
        else:
            head += resources.held
        if attempt := self._attempt():
            head += wire.attribute(names.RAY_ATTEMPT, attempt)
        if more is not None:
            head += more()
        span = recorder.begin(template, self._span_flags, None, start, head)
        return Context({SPAN_KEY: span, TASK_KEY: task_id}), span

    def _parent(self, span_id: bytes) -> Parent:
        return Parent(self._trace_id, span_id, self._flags, None, remote=True)
