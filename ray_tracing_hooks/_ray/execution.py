"""Execution of tasks and actor methods in a worker.

Wraps ``FunctionActorManager.get_execution_info`` (Ray 2.60 ``_private/function_manager.py``), which the worker calls
once for each function or method that it is to run, and wraps the executor that it returns. Ray reads ``method`` and
``name`` of an actor method's executor to detect coroutines and internal methods, so our executor has them too.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import AsyncGeneratorType, GeneratorType
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context

from ray_tracing_hooks import _compiled, names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import submit_time
from ray_tracing_hooks._ray import generators, labels, tracing
from ray_tracing_hooks._ray.arguments import KEY, RecordedArguments, arrivals
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.inherited import Inherited, compiled_execution
from ray_tracing_hooks._ray.propagation import (
    ACTOR_ID,
    TASK_ID,
    TASK_KEY,
    Begun,
    caller_attribute,
    incoming,
    reference,
    submission,
    unrecorded_span,
)
from ray_tracing_hooks._ray.templates import CONSUMER, HAS_SERVE, OF_SERVE
from ray_tracing_hooks._record.carrier import NO_TRACE, RUNS, Carried, decode
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, reset
from ray_tracing_hooks._record.recorder import SAMPLED, Template, UnsampledRecorder
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed, guarded
from ray_tracing_hooks._safety.patching import Patches

if TYPE_CHECKING:
    from ray_tracing_hooks._record.span import Parent, RecordedSpan


def patch(patches: Patches) -> bool:
    """Wrap the executors of this worker; False if this Ray lacks the wrapped method."""
    from ray._private.function_manager import FunctionActorManager  # noqa: PLC0415

    if not patches.wrap(FunctionActorManager, "get_execution_info", _get_execution_info):
        return False
    # If the user's own code calls the hook, Ray has already cached some executors.
    forget_executors()
    arrivals.open()
    patches.on_undo(arrivals.close)
    return True


def forget_executors() -> None:
    """Clear Ray's cache, so that it gets every executor again."""
    from ray._private.worker import global_worker  # noqa: PLC0415

    infos = getattr(global_worker.function_actor_manager, "execution_infos", None)
    if isinstance(infos, dict):
        infos.clear()


def _get_execution_info(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_execution_info(self: Any, job_id: Any, function_descriptor: Any) -> Any:
        info = original(self, job_id, function_descriptor)
        with guarded("tracing a function"):
            return _replaced(info, job_id, function_descriptor)
        return _without_span(info)

    return get_execution_info


def _replaced(info: Any, job_id: Any, descriptor: Any) -> Any:
    if getattr(info.function, "__ray_tracing_hooks__", False):
        return info
    active = tracing.active
    if active is not None:
        active.job.load_job_trace(job_id.hex(), task_is_there=True)
        is_of_serve = descriptor.module_name.startswith(OF_SERVE)
        if (is_of_serve or HAS_SERVE in sys.modules) and active.join_serve() and is_of_serve:
            return _of_serve(info, is_method=bool(descriptor.class_name))
    return info._replace(function=_executor(info.function, descriptor))


def _of_serve(info: Any, *, is_method: bool) -> Any:
    """The executor of a task or method of Serve itself, which makes no span. Callers that do not take part in Serve,
    because of other settings, still send their context.
    """
    if is_method:
        # A process of an actor executes nothing else, and requests use these methods.
        arrivals.leave_out_executors()
        return info
    return _without_span(info)


def _without_span(info: Any) -> Any:
    """The executor of a task or method that makes no span, whether its calls carry a context or not."""

    def executor(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop(KEY, None)
        return info.function(*args, **kwargs)

    return info._replace(function=_dressed(executor, info.function))


def _executor(function: Callable[..., Any], descriptor: Any) -> Callable[..., Any]:
    class_name = descriptor.class_name
    # Ray's executor of a method has it. That of a task is the user's function, whose attributes mean something else.
    method = getattr(function, "method", None) if class_name else None
    if class_name:
        name = descriptor.function_name
    else:
        module = getattr(function, "__module__", None) or descriptor.module_name
        name = f"{module}.{getattr(function, '__name__', descriptor.function_name)}"
    is_creation = bool(class_name) and name == "__init__"
    wrap = _function_executor
    if inspect.iscoroutinefunction(method):
        wrap = _coroutine_executor
    elif inspect.isasyncgenfunction(method):
        wrap = _async_generator_executor
    shown = _recorded_arguments(method or function, descriptor.function_name, class_name)
    group = getattr(method, "__ray_concurrency_group__", None)
    named = class_name, name, descriptor.module_name, group if isinstance(group, str) else ""

    def as_what_runs(runs: str = "", part: str = "") -> Begin:
        return _reporting(Beginning(*named, runs, part, is_creation=is_creation).begin)

    active = tracing.active
    naming = None
    if active is not None:
        naming = active.namings.of(descriptor.module_name, class_name, descriptor.function_name)
    if naming is None or is_creation:
        executor = wrap(function, as_what_runs(part=naming.part if naming is not None else ""), shown)
    else:
        begins = labels.Begins(as_what_runs, naming.part)
        returned = naming.returned if naming.returns is not None else None
        executor = labels.executor(
            function, naming, lambda runs: wrap(function, begins.of(runs), shown, returned), is_method=bool(class_name)
        )
    if (class_name, name) == ("JobSupervisor", "run") and descriptor.module_name.startswith("ray.dashboard."):
        from ray_tracing_hooks._ray import jobs  # noqa: PLC0415  few workers need it

        executor = jobs.executor(executor)
    return _dressed(executor, function)


def _reporting(begin: Begin) -> Begin:
    """``begin``, with what the span of a task reports at its end: calls left out by rate limits, peaks of memory."""
    active = tracing.active
    limits, memory = (active.rate_limits, active.memory) if active is not None else (None, None)
    if limits is None and memory is None:
        return begin

    def begin_reporting(*arguments: Any) -> Begun | None:
        begun = begin(*arguments)
        context, span = begun or (Context(), None)
        if span is not None:
            if limits is not None:
                limits.report(context, span)
            if memory is not None:
                memory.measure(span)
        return begun

    return begin_reporting


def _dressed(executor: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """``executor`` with the attributes that Ray reads from ``function``, marked as ours."""
    for attribute in ("method", "name"):
        if hasattr(function, attribute):
            setattr(executor, attribute, getattr(function, attribute))
    executor.__ray_tracing_hooks__ = True  # type: ignore[attr-defined]
    return executor


@guarded("reading the parameters of a function")
def _recorded_arguments(function: Any, name: str, class_name: str) -> RecordedArguments | None:
    """The renderer of a function's arguments; None if they are not recorded, or on failure."""
    active = tracing.active
    if active is None or active.redactor is None:
        return None
    return RecordedArguments(active.redactor, function, name, is_method=bool(class_name))


Begin = Callable[..., "Begun | None"]
"""Begins a task, given the context that its call carried (:meth:`Beginning.begin`)."""


Returned = Callable[["RecordedSpan", Any], None]
"""Is called with a span and the result of its task, for a generator with each item."""


def _function_executor(
    function: Callable[..., Any], begin: Begin, shown: RecordedArguments | None = None, returned: Returned | None = None
) -> Callable[..., Any]:
    @functools.wraps(function)
    def execute(*args: Any, **kwargs: Any) -> Any:
        begun = begin(kwargs.pop(KEY, None)) if shown is None else begin(kwargs.pop(KEY, None), shown.of(args, kwargs))
        if begun is None:
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
        context, span = begun
        token = attach(context)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            if span is not None:
                fail(span, error)
            raise
        finally:
            reset(token)
        if type(result) is GeneratorType or type(result) is AsyncGeneratorType:
            return _generated(result, context, span, returned)
        if span is not None:
            if shown is not None:
                shown.result(span, result)
            if returned is not None:
                returned(span, result)
            span.end()
        return result

    return execute


def _generated(result: Any, context: Context, span: RecordedSpan | None, returned: Returned | None = None) -> Any:
    """The generator ``result`` of a task, whose body runs while Ray iterates it: the span stays open until then."""
    if type(result) is AsyncGeneratorType:
        return generators.traced_async(result, context, span)
    return generators.traced(result, context, span, returned)


def _coroutine_executor(
    function: Callable[..., Any], begin: Begin, shown: RecordedArguments | None = None, returned: Returned | None = None
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def execute(*args: Any, **kwargs: Any) -> Any:
        begun = begin(kwargs.pop(KEY, None)) if shown is None else begin(kwargs.pop(KEY, None), shown.of(args, kwargs))
        if begun is None:
            try:
                return await function(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
        context, span = begun
        token = attach(context)
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            if span is not None:
                fail(span, error)
            raise
        finally:
            detach(token)
        if span is not None:
            if shown is not None:
                shown.result(span, result)
            if returned is not None:
                returned(span, result)
            span.end()
        return result

    return execute


def _async_generator_executor(
    function: Callable[..., Any],
    begin: Begin,
    shown: RecordedArguments | None = None,
    returned: Returned | None = None,
) -> Callable[..., Any]:
    """Its task begins with the first step, which the event loop makes; ``returned`` is not called. Where Ray calls the
    method itself, other calls have begun since this one did, and Ray names one of them as the current task (Ray 2.60
    ``_raylet.pyx``, ``execute_task``: the arguments of an async actor's method are awaited, and calls take turns in one
    thread).
    """

    @functools.wraps(function)
    def execute(*args: Any, **kwargs: Any) -> Any:
        carried = kwargs.pop(KEY, None)
        first = (carried,) if shown is None else (carried, shown.of(args, kwargs))
        return generators.traced_from_first_step(function(*args, **kwargs), lambda: begin(*first))

    return execute


class Beginning(_compiled.BeginningBase):
    """Begins the tasks of one function or method in this worker.

    ``module`` is that of a method's class, and ``group`` the concurrency group of the method. ``runs`` is what they run
    if that is something else, for the ``part`` of a library; what a call carries comes first.
    """

    def __init__(
        self,
        class_name: str,
        name: str,
        module: str = "",
        group: str = "",
        runs: str = "",
        part: str = "",
        *,
        is_creation: bool = False,
    ) -> None:
        self._named = (class_name, name, module, group, runs, part if runs else "")
        self._part = part
        self._is_creation = is_creation
        self._inherited: Inherited | None = None
        self._active: tracing.Tracing | None = None
        """The connection that what follows belongs to."""
        self._template: Template | None = None
        # For the compiled part, if that is in use, which begins the common ones of the tasks with them.
        self._tracing = tracing
        self._inheriting: _compiled.hotpath.Execution | None = None
        self._carrying: _compiled.hotpath.Execution | None = None

    def _begin(self, carried: bytes | None, more: Callable[[], bytes] | None = None) -> Begun | None:
        """The context that the task runs in and its span, if any; None for a task that is not traced.

        ``carried`` is the context that its call carried, and ``more`` returns further encoded attributes of the span.
        """
        active = tracing.active
        if active is None:
            return None
        try:
            if self._is_creation:
                carried = arrivals.take_creation()
            elif carried is None:
                inherited = self._inherited
                if inherited is None or not inherited.is_of(active.recorder):
                    inherited = self._inherited = self._inherits(active)
                    self._inheriting = inherited.execution if inherited is not None else None
                return inherited.begin(more) if inherited is not None else None
            if carried is None or carried == NO_TRACE:
                return None
            if active is not self._active:
                self._prepare(active)
            if carried[0] & RUNS:
                return self._as_the_caller_says(active, decode(carried), more)
            return _carried(active, decode(carried), self._template, self._named[0], self._is_creation, more)
        except Exception as error:  # noqa: BLE001  the user's code must run whatever fails here
            self._fault(error)
            return None

    def _fault(self, error: Exception) -> None:
        failed("tracing a task", error)

    def _prepare(self, active: tracing.Tracing) -> None:
        """Prepare for tasks of this connection that carry a context."""
        self._active, self._template, self._carrying = active, active.templates.of(CONSUMER, *self._named), None
        recorder, core_worker = active.recorder, active.process.worker.core_worker
        sampler = recorder.sampler
        if self._template is not None and not self._is_creation and sampler.follows_parent:
            held = None if self._named[0] else active.held
            self._carrying = compiled_execution(recorder, sampler, recorder, core_worker, self._template, held)

    def _as_the_caller_says(self, active: tracing.Tracing, carried: Carried, more: Callable[[], bytes] | None) -> Begun:
        attributes, template = carried.attributes, self._template
        if carried.runs:
            template = active.templates.of(CONSUMER, *self._named[:4], carried.runs, self._part)

        def with_attributes() -> bytes:
            return attributes + more() if more is not None else attributes

        return _carried(active, carried, template, self._named[0], self._is_creation, with_attributes)

    def _inherits(self, active: tracing.Tracing) -> Inherited | None:
        """How tasks without a carried context begin; None if the job has no trace."""
        job = active.job.inherited
        if job is None:
            return None
        template = active.templates.of(CONSUMER, *self._named)
        is_method = bool(self._named[0])
        core_worker = active.process.worker.core_worker
        return Inherited(active.recorder, core_worker, job, template, None if is_method else active.held)


def _carried(
    active: tracing.Tracing,
    carried: Carried,
    template: Template | None,
    class_name: str,
    is_creation: bool,
    more: Callable[[], bytes] | None,
) -> Begun:
    recorder, core_worker = active.recorder, active.process.worker.core_worker
    context, parent = incoming(carried)
    trace_id, flags = recorder.decide(parent)
    task_id = core_worker.get_current_task_id().binary()
    recording = recorder if flags & SAMPLED else recorder.unsampled
    if recording is None or template is None or carried.without_span:
        return Context({**context, SPAN_KEY: unrecorded_span(parent), TASK_KEY: task_id}), None
    hex_id = task_id.hex().encode()
    called = TASK_ID + hex_id + caller_attribute(carried.parent_task_id)
    of_actor = ACTOR_ID + hex_id[16:]  # a task id contains its actor id, see ActorID in id.h
    first = called + (of_actor if class_name else active.held.encoded) + submit_time(carried.submit_time_ns)
    if carried.headers:
        first += reference(context, parent)
    if attempt := core_worker.get_current_task_attempt_number():
        first += encode.attribute(names.RAY_ATTEMPT, attempt)
    if more is not None:
        first += more()
    # With the first attempt alone, since the others have the same submission.
    if carried.parent_id is not None and isinstance(recording, UnsampledRecorder) and not attempt:
        described = called + of_actor if is_creation else called
        its_submission = functools.partial(_submission, template, carried, parent, described)
        span = recording.start_execution(template, flags, parent, first, its_submission)
    else:
        span = recording.start(template, trace_id, flags, parent, first)
    if attempt and is_creation:
        span.add_event(names.ACTOR_RESTARTED, {names.RAY_ATTEMPT: attempt})
    return Context({**context, SPAN_KEY: span, TASK_KEY: task_id}), span


_OF_CALL = (names.RAY_REMOTE, names.RAY_ACTOR_CLASS, names.RAY_ACTOR_METHOD, names.RAY_FUNCTION)


def _submission(template: Template, carried: Carried, parent: Parent, described: bytes) -> bytes:
    """The encoded submission of a call whose execution has this template.

    Where the caller was is not known here, apart from its job, which the id of its task ends with (see TaskID in id.h).
    """
    known = {key: template.attributes[key] for key in _OF_CALL if key in template.attributes}
    if carried.parent_task_id:
        known[names.RAY_JOB_ID] = carried.parent_task_id[-_JOB_ID_BYTES:].hex()
    name = names.submission_name(known[names.RAY_FUNCTION])
    return submission(carried, parent, name, encode.attributes(known) + described + carried.attributes)


_JOB_ID_BYTES = 4
