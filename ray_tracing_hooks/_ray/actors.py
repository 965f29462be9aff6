"""Submission of actor creations and actor methods: wraps ``ActorClass._remote`` and ``ActorMethod._remote`` (Ray 2.60
``actor.py``).
"""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray.submission import Called, traced
from ray_tracing_hooks._ray.tracing import ACTOR_ID, OF_SERVE, PRODUCER, Tracing

_CREATION_TASK = "ff" * 8
"""The task id of a creation is this and the actor's id (Ray ``src/ray/common/id.cc``, ``ForActorCreationTask``)."""


_MOST_METHODS = 10_000
"""More are not remembered: programs may make actors without end."""


def patch(patches: Patches) -> bool:
    """Wrap the submission of creations and methods; False if this Ray has not both places."""
    from ray.actor import ActorClass, ActorMethod  # noqa: PLC0415

    creating = traced(_describe_creation, _task_of_creation, _as_they_are)
    return patches.wrap(ActorClass, "_remote", creating) and patches.wrap(ActorMethod, "_remote", traced(_describe))


def _describe_creation(active: Tracing, actor_class: Any, _rest: Any, options: dict[str, Any]) -> Called | None:
    metadata = actor_class.__ray_metadata__
    # With get_if_exists Ray calls the method again if, and only if, the actor has to be made.
    if metadata.is_cross_language or options.get("get_if_exists"):
        return None
    module = getattr(metadata.modified_class, "__module__", "")
    template = active.template(PRODUCER, metadata.class_name, "__init__", module)
    return Called(template, inherits=False, creation=True, limit=active.limit(template))


def _task_of_creation(handle: Any) -> bytes:
    actor_id = _actor_id(handle)
    return bytes.fromhex(_CREATION_TASK + actor_id) if actor_id else b""


def _as_they_are(args: Any) -> Any:
    """Ray flattens the arguments of a creation even if there are none."""
    return args


def _describe(active: Tracing, method: Any, rest: Any, options: dict[str, Any]) -> Called | None:
    handle = _handle(method)
    if handle is None:
        return None
    key = handle._ray_actor_id, method._method_name  # noqa: SLF001  as Ray's own tracing
    try:
        called = active.called[key]
    except KeyError:
        if len(active.called) >= _MOST_METHODS:
            active.called.clear()
        called = active.called[key] = _called(active, method, handle)
    if called is not None and called.inherits and (rest or options.get("num_returns") == 0):
        return called._replace(inherits=False)
    return called


def _called(active: Tracing, method: Any, handle: Any) -> Called | None:
    if handle._ray_is_cross_language:  # noqa: SLF001  as Ray's own tracing
        return None
    descriptor = handle._ray_actor_creation_function_descriptor  # noqa: SLF001
    if descriptor.module_name.startswith(OF_SERVE):
        from ray_tracing_hooks._ray.serve import places  # noqa: PLC0415  few processes call them

        if places.join(active):
            return None
    actor_id = _actor_id(handle)
    inherits = (
        getattr(method, "_num_returns", 0) != 0
        # What a decorator returns may be anything.
        and getattr(method, "_decorator", "unknown") is None
        # The id of an actor ends with that of its job.
        and actor_id.endswith(active.own_job())
    )
    name = method._method_name  # noqa: SLF001
    template = active.template(PRODUCER, descriptor.class_name, name, descriptor.module_name)
    limit = active.limit(template)
    attributes = ACTOR_ID + actor_id.encode() if actor_id else b""
    return Called(template, inherits and limit is None, attributes=attributes, limit=limit)


def _handle(method: Any) -> Any:
    """The actor handle that a method belongs to; None if it is gone."""
    try:
        return method._actor  # noqa: SLF001
    except AttributeError:  # before Ray 2.48, which holds it for good
        return method._actor_hard_ref or method._actor_ref()  # noqa: SLF001


def _actor_id(handle: Any) -> str:
    actor_id = getattr(handle, "_ray_actor_id", None)
    return str(actor_id.hex()) if actor_id is not None else ""
