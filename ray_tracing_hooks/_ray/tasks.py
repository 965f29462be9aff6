"""Submission of tasks: wraps ``RemoteFunction._remote`` (Ray 2.60 ``remote_function.py``), which ``f.remote()``,
``f.options(...).remote()`` and DAG nodes all call.
"""

from __future__ import annotations

import inspect
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.arguments import place_in
from ray_tracing_hooks._ray.calls import Called, Calls, Dispatched
from ray_tracing_hooks._ray.cluster import Cluster
from ray_tracing_hooks._ray.submission import traced
from ray_tracing_hooks._ray.templates import OF_SERVE, PRODUCER
from ray_tracing_hooks._safety.patching import Patches


def patch(patches: Patches, cluster: Cluster) -> bool:
    """Wrap the submission of tasks to ``cluster``; False if this Ray lacks the wrapped method."""
    from ray.remote_function import RemoteFunction  # noqa: PLC0415

    return patches.wrap_within(RemoteFunction, "_remote", traced(_describe, with_place=place_in(cluster)))


def _describe(calls: Calls, task: Any, args: Any, kwargs: Any, _rest: Any, options: dict[str, Any]) -> Called | None:
    if task._is_cross_language:  # noqa: SLF001  as Ray's own tracing
        return None
    # A decorator may return anything, so the task id may be unknown. But a call that can have no arguments has no place
    # for a context.
    inherits = options.get("num_returns") != 0 and (
        getattr(task, "_decorator", "unknown") is None or not inspect.signature(task._function).parameters  # noqa: SLF001
    )
    key = task._function_name, inherits  # noqa: SLF001  as above
    try:
        called = calls.called[key]
    except KeyError:
        called = _called(calls, *key, args, kwargs)
    if called is not None and "name" in options:
        called = called.named(options["name"])
    if called is not None and getattr(task, "_last_export_cluster_and_job", "unknown") is None:
        return _Exporting.of(task, called)
    return called


class _Exporting(Called):
    """A call with which Ray serializes its function. How large that is, is known once Ray has accepted the call."""

    task: Any = None

    @classmethod
    def of(cls, task: Any, called: Called) -> Called:
        made = cls(*called)
        made.task = task
        return made

    @property
    def attributes(self) -> bytes:
        pickled = getattr(self.task, "_pickled_function", None)
        size = encode.attribute(names.RAY_FUNCTION_SIZE, len(pickled)) if pickled is not None else b""
        return super().attributes + size


def _called(calls: Calls, function: str, inherits: bool, args: Any, kwargs: Any) -> Called | None:
    key = function, inherits
    if function.startswith(OF_SERVE) and calls.join_serve():
        calls.called[key] = None  # its execution makes no span either
        return None
    dispatched = calls.dispatched.get(key)
    if dispatched is None:
        template = calls.templates.of(PRODUCER, "", function)
        limit = calls.limit(template)
        called = Called(template, inherits and limit is None, limit=limit)
        module, _, name = function.rpartition(".")
        naming = calls.namings.of(module, "", name)
        if naming is None:
            calls.called[key] = called
            return called
        dispatched = calls.dispatched[key] = Dispatched(naming, called, ("", function, ""))
    return calls.describe_dispatched(dispatched, args, kwargs)
