"""What calls submit: wraps ``RemoteFunction._remote`` for tasks, ``ActorClass._remote`` for creations of actors, and
``ActorMethod._remote`` for methods (Ray 2.60 ``remote_function.py`` and ``actor.py``), which ``.remote()``,
``.options(...).remote()`` and DAG nodes all call.
"""

from __future__ import annotations

import inspect
from operator import attrgetter
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.arguments import place_in
from ray_tracing_hooks._ray.cluster import Cluster
from ray_tracing_hooks._ray.propagation import ACTOR_ID
from ray_tracing_hooks._ray.submission import traced
from ray_tracing_hooks._ray.templates import OF_SERVE, PRODUCER
from ray_tracing_hooks._ray.tracing import Called, Dispatched, OutgoingCalls
from ray_tracing_hooks._safety.patching import Patches


def patch_tasks(patches: Patches, cluster: Cluster) -> bool:
    """Wrap the submission of tasks to ``cluster``; False if this Ray lacks the wrapped method."""
    from ray.remote_function import RemoteFunction  # noqa: PLC0415

    return patches.wrap_within(RemoteFunction, "_remote", traced(_describe_task, with_place=place_in(cluster)))


def _describe_task(
    calls: OutgoingCalls, task: Any, args: Any, kwargs: Any, _rest: Any, options: dict[str, Any]
) -> Called | None:
    if task._is_cross_language:  # noqa: SLF001  as Ray's own tracing
        return None
    # A decorator may return anything, so the task id may be unknown. But a call that can have no arguments has no place
    # for a context.
    inherits = options.get("num_returns") != 0 and (
        getattr(task, "_decorator", "unknown") is None or not inspect.signature(task._function).parameters  # noqa: SLF001
    )
    key = task._function_name, inherits  # noqa: SLF001  as Ray's own tracing
    try:
        called = calls.called[key]
    except KeyError:
        called = _called_task(calls, *key, args, kwargs)
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


def _called_task(calls: OutgoingCalls, function: str, inherits: bool, args: Any, kwargs: Any) -> Called | None:
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


_CREATION_TASK = "ff" * 8
"""The task id of a creation is this and the actor id (Ray ``src/ray/common/id.cc``, ``ForActorCreationTask``)."""


_key_of = attrgetter("_actor._ray_actor_id", "_method_name")
"""The key of a method among :attr:`OutgoingCalls.called`."""

_MOST_METHODS = 10_000
"""Bounds the cache, since programs may create actors without limit."""


def patch_actors(patches: Patches, cluster: Cluster) -> bool:
    """Wrap the submission of creations and methods to ``cluster``; False if this Ray lacks one of the methods."""
    from ray.actor import ActorClass, ActorMethod  # noqa: PLC0415

    creating = traced(_describe_creation, _task_of_creation)
    calling = traced(_describe_method, with_place=place_in(cluster), key_of=_key_of)
    return patches.wrap_within(ActorClass, "_remote", creating) and patches.wrap_within(ActorMethod, "_remote", calling)


def _describe_creation(
    calls: OutgoingCalls, actor_class: Any, args: Any, kwargs: Any, _rest: Any, options: dict[str, Any]
) -> Called | None:
    metadata = actor_class.__ray_metadata__
    # With get_if_exists, Ray calls the method again if and only if the actor has to be created.
    if metadata.is_cross_language or options.get("get_if_exists"):
        return None
    module = getattr(metadata.modified_class, "__module__", "")
    if str(module).startswith(OF_SERVE) and calls.join_serve():
        return None  # its execution makes no span either
    named = metadata.class_name, "__init__", module
    template = calls.templates.of(PRODUCER, *named)
    name = options.get("name")
    # Besides the name of the call, the name of the actor, as on its executions.
    attributes = encode.attribute(names.RAY_ACTOR_NAME, name) if isinstance(name, str) and name else b""
    called = Called(template, inherits=False, creation=True, attributes=attributes, limit=calls.limit(template))
    naming = calls.namings.of(module, metadata.class_name, "__init__")
    if naming is not None and (runs := naming.shown(args, kwargs)) is not None:
        called = calls.shown(called, named, naming.part, runs._replace(is_carried=True))
    return called.named(name)


def _task_of_creation(handle: Any) -> bytes:
    actor_id = _actor_id(handle)
    return bytes.fromhex(_CREATION_TASK + actor_id) if actor_id else b""


def _describe_method(
    calls: OutgoingCalls, method: Any, args: Any, kwargs: Any, rest: Any, options: dict[str, Any]
) -> Called | None:
    handle = _handle(method)
    if handle is None:
        return None
    key = handle._ray_actor_id, method._method_name  # noqa: SLF001  as Ray's own tracing
    try:
        called = calls.called[key]
    except KeyError:
        called = _first_or_dispatched(calls, key, method, handle, args, kwargs)
    return _with_options(called, rest, options) if rest or options else called


def _first_or_dispatched(
    calls: OutgoingCalls, key: tuple[Any, str], method: Any, handle: Any, args: Any, kwargs: Any
) -> Called | None:
    dispatched = calls.dispatched.get(key)
    if dispatched is None:
        for known in (calls.called, calls.dispatched, calls.bodies):
            if len(known) >= _MOST_METHODS:
                known.clear()
        called = calls.called[key] = _called_method(calls, method, handle)
        if called is None:
            return None
        descriptor = handle._ray_actor_creation_function_descriptor  # noqa: SLF001
        naming = calls.namings.of(descriptor.module_name, descriptor.class_name, key[1])
        if naming is None:
            if called.inherits and called.template is not None:
                calls.bodies[key] = called.template.body + called.attributes
            return called
        del calls.called[key]
        named = descriptor.class_name, key[1], descriptor.module_name
        dispatched = calls.dispatched[key] = Dispatched(naming, called, named)
    return calls.describe_dispatched(dispatched, args, kwargs)


def _with_options(called: Called | None, rest: Any, options: dict[str, Any]) -> Called | None:
    """The same call with options that affect its span, which few calls have."""
    if called is None:
        return None
    if called.inherits and (rest or options.get("num_returns") == 0):
        called = called._replace(inherits=False)
    if isinstance(group := options.get("concurrency_group"), str):
        called = called._replace(attributes=called.attributes + encode.attribute(names.RAY_CONCURRENCY_GROUP, group))
    return called.named(options.get("name"))


def _called_method(calls: OutgoingCalls, method: Any, handle: Any) -> Called | None:
    if handle._ray_is_cross_language:  # noqa: SLF001  as Ray's own tracing
        return None
    descriptor = handle._ray_actor_creation_function_descriptor  # noqa: SLF001
    # Requests to Serve carry their context themselves.
    if descriptor.module_name.startswith(OF_SERVE) and calls.join_serve():
        return None
    actor_id = _actor_id(handle)
    # The id of an actor ends with that of its job.
    is_of_own_job = actor_id.endswith(calls.own_job())
    inherits = (
        is_of_own_job
        and getattr(method, "_num_returns", 0) != 0
        # A decorator may return anything.
        and getattr(method, "_decorator", "unknown") is None
    )
    name = method._method_name  # noqa: SLF001
    template = calls.templates.of(PRODUCER, descriptor.class_name, name, descriptor.module_name)
    limit = calls.limit(template)
    attributes = ACTOR_ID + actor_id.encode() if actor_id else b""
    return Called(template, inherits and limit is None, is_of_own_job, attributes=attributes, limit=limit)


def _handle(method: Any) -> Any:
    """The actor handle that a method belongs to; None if it is gone."""
    try:
        return method._actor  # noqa: SLF001
    except AttributeError:  # before Ray 2.48
        return method._actor_hard_ref or method._actor_ref()  # noqa: SLF001


def _actor_id(handle: Any) -> str:
    actor_id = getattr(handle, "_ray_actor_id", None)
    return str(actor_id.hex()) if actor_id is not None else ""
