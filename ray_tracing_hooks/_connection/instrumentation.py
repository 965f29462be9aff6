"""Puts the instrumentation of Ray in place in a process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ray_tracing_hooks._guard import report
from ray_tracing_hooks._patching import Patches, in_place

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.process import RayProcess
    from ray_tracing_hooks._ray.rates import RateLimits
    from ray_tracing_hooks._record.recorder import Recorder
    from ray_tracing_hooks._record.redaction import Redactor
    from ray_tracing_hooks._settings import Settings


def instrument(
    process: RayProcess,
    settings: Settings,
    recorder: Recorder,
    patches: Patches,
    *,
    makes_spans: bool,
    on_disconnecting: Callable[[], None],
    on_disconnected: Callable[[], None],
) -> None:
    """Trace what this process does with Ray, until ``patches`` are undone.

    Where it ``makes_spans`` or not, contexts are passed on. ``on_disconnecting`` is called when it begins to
    disconnect from Ray, ``on_disconnected`` when it has.
    """
    from ray_tracing_hooks._ray import (  # noqa: PLC0415
        actors,
        driver,
        errors,
        execution,
        resources,
        shortcuts,
        signatures,
        tasks,
        tracing,
    )

    parts = settings.ray if makes_spans else frozenset()
    tracing.active = tracing.Tracing(
        recorder,
        process,
        parts=parts,
        include=settings.include,
        exclude=settings.exclude,
        internal=settings.internal,
        redactor=_redactor(settings),
        rate_limits=_rate_limits(settings, patches),
        patches=patches,
    )
    places: Iterable[Any] = (
        ("the end of a driver is not noticed", driver.patch, on_disconnecting, on_disconnected),
        ("calls of tasks are not traced", tasks.patch),
        ("calls of actors are not traced", actors.patch),
        ("tasks and actors are not traced where they run", execution.patch),
        ("tracebacks from tasks have lines of this package", errors.patch),
    )
    if process.is_client:
        from ray_tracing_hooks._ray import client  # noqa: PLC0415  few processes are one

        places = (("the end of a client is not noticed", client.patch_end, on_disconnecting, on_disconnected),)
    for lost, patch, *callbacks in places:
        if not in_place(patch, patches, *callbacks):
            report(f"{lost}: Ray {process.ray_version} has changed the place where that is done")
            if patch in {tasks.patch, actors.patch}:
                tracing.active.shares_job_trace = False
    _trace_waiting(process, parts, patches)
    # Without them calls are slower, and tell less of what tasks hold; no span is lost.
    if not process.is_client:
        for patch in (signatures.patch, shortcuts.patch, resources.patch):
            in_place(patch, patches)
        if tracing.HAS_SERVE in sys.modules:
            from ray_tracing_hooks._ray.serve import places as of_serve  # noqa: PLC0415  few drivers have it

            of_serve.join(tracing.active)


def _trace_waiting(process: RayProcess, parts: frozenset[str], patches: Patches) -> None:
    waiting = parts & {"get", "wait", "put"}
    if not waiting:
        return
    from ray_tracing_hooks._ray import objects, sizes  # noqa: PLC0415  asked for by few

    if not objects.patch(patches, waiting):
        report(f"not all of {', '.join(sorted(waiting))} make spans: Ray {process.ray_version} changed them")
    if not process.is_client:
        in_place(partial(sizes.patch, parts=waiting), patches)
    if "get" in parts:
        from ray_tracing_hooks._ray import awaiting  # noqa: PLC0415  as above

        if not in_place(awaiting.patch, patches):
            report(f"await makes no spans: Ray {process.ray_version} has changed the place where that is done")


def _rate_limits(settings: Settings, patches: Patches) -> RateLimits | None:
    if not settings.rate_limit:
        return None
    from ray_tracing_hooks._ray import rates  # noqa: PLC0415  asked for by few

    limits = rates.RateLimits(settings.rate_limit)
    rates.patch(patches, limits)
    return limits


def _redactor(settings: Settings) -> Redactor | None:
    if not settings.arguments:
        return None
    from ray_tracing_hooks._record.redaction import Redactor  # noqa: PLC0415  asked for by few

    return Redactor(settings.redact)
