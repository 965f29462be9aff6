"""Tasks without a carried context: their submissions are spans in the trace published for their job.

Both sides derive the id of the submission's span from the task id, so nothing has to be sent for it. Who made the call
is known if it was the driver, whose tasks have a depth of one (Ray 2.60 ``src/ray/core_worker/core_worker.cc``,
``BuildCommonTaskSpec``); otherwise ``ray.parent_task_id`` is only on the submission.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import _compiled, names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import (
    BEFORE_PARENT_ID,
    BEFORE_SPAN_ID,
    BEFORE_SUBMIT_TIME,
    BEFORE_TRACE_ID,
    FLAGS_REMOTE_PARENT,
    START_TAG,
    before_id,
    start_time,
)
from ray_tracing_hooks._ray.cluster import JobTrace
from ray_tracing_hooks._ray.propagation import (
    ACTOR_ID,
    PARENT_TASK_ID,
    TASK_ID,
    TASK_KEY,
    Begun,
    caller_attribute,
    unrecorded_span,
)
from ray_tracing_hooks._ray.templates import HeldResources
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.current import SPAN_KEY
from ray_tracing_hooks._record.recorder import SAMPLED, Recorder, Template
from ray_tracing_hooks._record.sampling import Sampler
from ray_tracing_hooks._record.span import Parent, RecordedSpan


class Inherited:
    """Begins the tasks of one function or method that carry no context.

    Args:
        job: The trace that these tasks belong to.
        template: The template of their spans; None if they make none.
        held: The resources of the running task; None for the methods of an actor.

    Attributes:
        execution: Begins the common ones of these tasks in the compiled part; None without it.
    """

    def __init__(
        self,
        recorder: Recorder,
        core_worker: Any,
        job: JobTrace,
        template: Template | None,
        held: HeldResources | None,
    ) -> None:
        self._of_connection, self._sampler = recorder, recorder.sampler
        self._task_id = core_worker.get_current_task_id
        self._attempt = core_worker.get_current_task_attempt_number
        self._depth = core_worker.get_task_depth
        self._trace_id, root_span_id, self._flags, driver = job
        self._template = template
        sampled = self._sampler.child(bool(self._flags & SAMPLED), self._trace_id)
        self._span_flags = self._flags & ~SAMPLED | sampled
        self._recorder = recorder.of(self._span_flags)
        self._mask = ids.mask_of_driver(root_span_id)
        self._held = held
        # The parts that are the same in the encoded spans of all these tasks.
        self._before = before_id(self._trace_id)
        self._of_template = (template.body if template is not None else b"") + TASK_ID
        self._of_driver = caller_attribute(driver)
        self._unsampled: Begun | None = None
        if self._recorder is None and not self._flags & SAMPLED:
            # An unrecorded span does not need its own parent.
            self._unsampled = Context({SPAN_KEY: unrecorded_span(self._parent(root_span_id))}), None
        self.execution: _compiled.hotpath.Execution | None = None
        if self._recorder is not None and template is not None and self._sampler.is_constant:
            self.execution = compiled_execution(
                recorder,
                self._sampler,
                self._recorder,
                core_worker,
                template,
                held,
                job=job,
                flags=self._span_flags,
                mask=self._mask,
            )

    def is_of(self, recorder: Recorder) -> bool:
        """Whether this is still valid for this recorder, that of the current connection."""
        sampler = self._sampler
        return self._of_connection is recorder and sampler is recorder.sampler and sampler.is_constant

    def begin(self, more: Callable[[], bytes] | None = None) -> Begun:
        """Begin the task that is running in this thread or coroutine; ``more`` returns further encoded attributes."""
        if self._unsampled is not None:
            return self._unsampled
        task_id = self._task_id().binary()
        parent_id = ids.span_id_of_task(task_id, self._mask)
        template, recorder = self._template, self._recorder
        if template is None or recorder is None:
            return Context({SPAN_KEY: unrecorded_span(self._parent(parent_id)), TASK_KEY: task_id}), None
        start = now_ns()
        hex_id = task_id.hex().encode()
        head = b"".join(
            (
                self._before,
                ids.new_span_id(),
                BEFORE_PARENT_ID,
                parent_id,
                FLAGS_REMOTE_PARENT,
                start_time(start),
                self._of_template,
                hex_id,
                self._of_driver if self._depth() == 1 else b"",
            )
        )
        if self._held is None:
            head += ACTOR_ID + hex_id[16:]  # a task id contains its actor id, see ActorID in id.h
        else:
            head += self._held.encoded
        if attempt := self._attempt():
            head += encode.attribute(names.RAY_ATTEMPT, attempt)
        if more is not None:
            head += more()
        span = recorder.begin(template, self._span_flags, None, start, head)
        return Context({SPAN_KEY: span, TASK_KEY: task_id}), span

    def _parent(self, span_id: bytes) -> Parent:
        return Parent(self._trace_id, span_id, self._flags, None, remote=True)


def compiled_execution(
    connection: Recorder,
    sampler: Sampler,
    recorder: Recorder,
    core_worker: Any,
    template: Template,
    held: HeldResources | None,
    *,
    job: JobTrace | None = None,
    flags: int = 0,
    mask: int = 0,
) -> _compiled.hotpath.Execution | None:
    """What begins the common ones of the tasks of one function or method, if the compiled part is in use.

    With a ``job`` it is for those that carry nothing, as :class:`Inherited` is; without one for those that carry their
    context. ``sampler`` is the one of the ``connection`` that has decided that the ``recorder`` records them: it begins
    none once the connection has another one, as another thread may set even before this is made.
    """
    return _compiled.use.execution(
        connection=connection,
        sampler=sampler,
        recorder=recorder,
        template=template,
        span_type=RecordedSpan,
        context_type=Context,
        span_key=SPAN_KEY,
        task_key=TASK_KEY,
        task_id=core_worker.get_current_task_id,
        attempt=core_worker.get_current_task_attempt_number,
        depth=core_worker.get_task_depth if job is not None else None,
        random=ids.random_64,
        held=held,
        trace_id=job.trace_id if job is not None else None,
        flags=flags,
        driver=(job.driver_task_id or None) if job is not None else None,
        mask=mask,
        before_trace_id=BEFORE_TRACE_ID,
        before_span_id=BEFORE_SPAN_ID,
        before_parent_id=BEFORE_PARENT_ID,
        after_parent_id=FLAGS_REMOTE_PARENT + START_TAG,
        body=template.body + TASK_ID,
        before_caller=PARENT_TASK_ID,
        before_actor_id=ACTOR_ID,
        before_submit_time=BEFORE_SUBMIT_TIME,
    )
