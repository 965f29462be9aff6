"""Async inference (``@task_consumer``): wraps the methods that put tasks into a Celery queue and that handle them,
``enqueue_task_sync`` and ``register_task_handle`` of ``CeleryTaskProcessorAdapter`` (Ray 2.60
``serve/task_processor.py``).

The context is carried in the headers of the message, in the format of the propagators in use. So it is also exchanged
with programs that use Celery without Ray. Celery sends the headers again with each retry.

Attributes follow OpenTelemetry's semantic conventions for messaging.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

from opentelemetry import propagate
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._exceptions import hide_frame, is_a
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._guard import failed, guarded
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.propagation import reference, unrecorded_span
from ray_tracing_hooks._ray.serve.server import Described, arrive
from ray_tracing_hooks._ray.serve.spans import Templates, of_this_replica
from ray_tracing_hooks._ray.templates import CONSUMER, PRODUCER, SERVE
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._record.span import Parent, RecordedSpan

MODULE = "ray.serve.schema"
"""Every process with Serve has imported this module; few import that of the adapter, which needs Celery."""

_ADAPTERS = "ray.serve.task_processor"

_tasks = Templates(CONSUMER, names.SERVE_TASK)

_sent_by = encode.attribute(names.MESSAGING_OPERATION_NAME, "send_task") + encode.attribute(
    names.MESSAGING_OPERATION_TYPE, "send"
)
_run_by = encode.attribute(names.MESSAGING_OPERATION_NAME, "run") + encode.attribute(
    names.MESSAGING_OPERATION_TYPE, "process"
)


def patch(patches: Patches) -> bool:
    """Wrap the adapter, as soon as one is created; False if this Ray has changed it."""
    from ray.serve import schema  # noqa: PLC0415

    if not hasattr(schema, "TaskProcessorAdapter"):
        return True  # older versions of Ray have no tasks
    return _wrap_adapter(patches) and patches.wrap(schema.TaskProcessorAdapter, "__init__", partial(_init, patches))


def _wrap_adapter(patches: Patches) -> bool:
    """Wrap the adapter for Celery if it has been imported; False if it lacks a wrapped method."""
    module = sys.modules.get(_ADAPTERS)
    if module is None:
        return True
    adapter = getattr(module, "CeleryTaskProcessorAdapter", None)
    # In this order: the other methods are older.
    return (
        adapter is not None
        and patches.wrap(adapter, "register_task_handle", _register_task_handle)
        and patches.wrap(adapter, "enqueue_task_sync", _enqueue_task_sync)
    )


def _init(patches: Patches, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  its name
        if tracing.active is not None:
            try:
                _wrap_adapter(patches)
            except Exception as error:  # noqa: BLE001  a fault here must not reach the user's program
                failed("joining Serve's tasks", error)
        original(self, *args, **kwargs)

    return __init__


def _enqueue_task_sync(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def enqueue_task_sync(self: Any, task_name: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        active = tracing.active
        begun = _send(active, self, task_name, options) if active is not None else None
        if begun is None:
            return original(self, task_name, args=args, kwargs=kwargs, **options)
        context, span, headers = begun
        token = attach(context)
        try:
            sent = original(self, task_name, args=args, kwargs=kwargs, **{**options, "headers": headers})
        except BaseException as error:
            hide_frame(error)
            if span is not None:
                fail(span, error)
            raise
        finally:
            detach(token)
        if span is not None:
            with guarded("recording the id of a task of Serve"):
                span.set_attribute(names.MESSAGING_MESSAGE_ID, str(sent.id))
            span.end()
        return sent

    return enqueue_task_sync


def _send(
    active: Tracing, adapter: Any, task_name: Any, options: dict[str, Any]
) -> tuple[Context, RecordedSpan | None, dict[str, Any]] | None:
    """The context for sending a task, its span if recorded, and the headers of the message."""
    try:
        context, recorder = get_current(), active.recorder
        parent = recorder.parent(context)
        trace_id, flags = recorder.decide(parent)
        recording = recorder.of(flags)
        span = None
        if recording is not None and active.selection.selects(task_name, SERVE):
            name = f"{task_name} {names.SERVE_ENQUEUE}"
            template = Template(name, PRODUCER, active.whereabouts.attributes())
            first = _of_task(adapter, task_name) + _sent_by + reference(context, parent)
            span = recording.start(template, trace_id, flags, parent, first)
        around = unrecorded_span(parent or Parent(trace_id, ids.new_span_id(), flags, None, remote=False))
        context = Context({**context, SPAN_KEY: span or around})
        headers: dict[str, Any] = {}
        propagate.inject(headers, context)
        # Headers that the program sets itself take precedence.
        headers.update(options.get("headers") or {})
    except Exception as error:  # noqa: BLE001  a fault here must not reach the user's task
        failed("tracing an enqueued task", error)
        return None
    return context, span, headers


def _of_task(adapter: Any, task_name: str) -> bytes:
    """The encoded attributes of a task that both sides have."""
    return (
        encode.attribute(names.MESSAGING_SYSTEM, "celery")
        + encode.attribute(names.MESSAGING_DESTINATION, adapter._config.queue_name)  # noqa: SLF001  there is no public API
        + encode.attribute(names.RAY_SERVE_TASK_NAME, task_name)
    )


def _register_task_handle(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def register_task_handle(self: Any, func: Any, name: Any = None) -> Any:
        if tracing.active is not None:
            try:
                func = _handler(self, func, name)
            except Exception as error:  # noqa: BLE001  a fault here must not reach the user's task
                failed("tracing a task handler", error)
        return original(self, func, name)

    return register_task_handle


def _handler(adapter: Any, handler: Any, name: str | None) -> Any:
    """A wrapper of ``handler`` for Celery: a function or a method like it, with the same signature."""
    function = handler.__func__ if inspect.ismethod(handler) else handler
    if inspect.iscoroutinefunction(handler) or not inspect.isfunction(function):
        return handler  # Serve refuses coroutine functions
    method = handler.__name__
    constant = _of_task(adapter, name or method) + _run_by

    def describe(active: Tracing, request: Any) -> Described:
        deployment, application, replica_id = of_this_replica()
        template = _tasks.of(active, deployment, application, method, replica_id)
        return None if template is None else (template, constant + _of_message(request))

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        active = tracing.active
        begun = _begin(active, describe) if active is not None else None
        if begun is None:
            return function(*args, **kwargs)
        context, span = begun
        token = attach(context)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            if span is not None:
                _end(span, error)
            raise
        finally:
            detach(token)
        if span is not None:
            span.end()
        return result

    # Celery checks arguments with it.
    run.__signature__ = inspect.signature(function, follow_wrapped=False)  # type: ignore[attr-defined]
    return MethodType(run, handler.__self__) if inspect.ismethod(handler) else run


def _begin(
    active: Tracing, describe: Callable[[Tracing, Any], Described]
) -> tuple[Context, RecordedSpan | None] | None:
    try:
        from celery import current_task  # noqa: PLC0415  only where Celery is used

        if not current_task:
            return None  # the program calls the handler directly
        request = current_task.request
        headers = {name: value for name, value in vars(request).items() if isinstance(value, str)}
        return arrive(active, headers, describe, request)
    except Exception as error:  # noqa: BLE001  a fault here must not reach the user's task
        failed("tracing a task from a queue", error)
        return None


def _of_message(request: Any) -> bytes:
    encoded = encode.attribute(names.MESSAGING_MESSAGE_ID, str(request.id))
    return encoded + encode.attribute(names.RAY_ATTEMPT, request.retries) if request.retries else encoded


def _end(span: RecordedSpan, error: BaseException) -> None:
    from celery.exceptions import TaskPredicate  # noqa: PLC0415  as above

    if is_a(error, TaskPredicate):
        span.end()  # the task asks to be retried, ignored or rejected
    else:
        fail(span, error)
