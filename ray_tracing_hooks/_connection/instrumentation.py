"""Puts the instrumentation of Ray in place in a process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_tracing_hooks._ray import errors, execution, libraries, targets, templates, tracing
from ray_tracing_hooks._ray.cluster import Cluster
from ray_tracing_hooks._ray.process import RayProcess, patch_end
from ray_tracing_hooks._ray.templates import Selection
from ray_tracing_hooks._ray.tracing import GenerationOptions, Options, Tracing
from ray_tracing_hooks._record.recorder import Recorder
from ray_tracing_hooks._safety.guard import report
from ray_tracing_hooks._safety.patching import Patches, in_place
from ray_tracing_hooks._settings.table import Settings

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.memory import Memory
    from ray_tracing_hooks._ray.rates import RateLimits
    from ray_tracing_hooks._record.argument_text import Redactor


class Lifetime(NamedTuple):
    """How long replacements in Ray last, and what is called when the connection ends.

    Attributes:
        patches: Holds the replacements that last as long as the connection.
        lasting_patches: Holds the replacements that outlast it.
        on_disconnecting: Called when this process begins to disconnect from Ray.
        on_disconnected: Called when it has disconnected.
    """

    patches: Patches
    lasting_patches: Patches
    on_disconnecting: Callable[[], None]
    on_disconnected: Callable[[], None]


def instrument(
    process: RayProcess,
    cluster: Cluster,
    settings: Settings,
    recorder: Recorder,
    lifetime: Lifetime,
    *,
    makes_spans: bool,
) -> Tracing:
    """Trace what this process does with Ray, for this ``lifetime``.

    Contexts are propagated whether it ``makes_spans`` or not.
    """
    patches, ends = lifetime.patches, (lifetime.on_disconnecting, lifetime.on_disconnected)
    parts = settings.ray if makes_spans else frozenset()
    tracing.active = active = tracing.Tracing(
        recorder,
        process,
        cluster,
        _options(settings, parts, _rate_limits(settings), _memory(settings)),
        carries_submit_time=settings.metrics,
        join_serve=libraries.joining_serve(patches, process.ray_version) if templates.SERVE in parts else lambda: False,
    )
    submitting = {targets.patch_tasks, targets.patch_actors}
    instrumented: Iterable[Any] = (
        ("the end of a driver is not detected", patch_end, *ends),
        ("calls of tasks are not traced", targets.patch_tasks, cluster),
        ("calls of actors are not traced", targets.patch_actors, cluster),
        ("tasks and actors are not traced where they run", execution.patch),
        ("tracebacks from tasks contain lines of this package", errors.patch),
    )
    if process.is_client:
        from ray_tracing_hooks._ray import client  # noqa: PLC0415  few processes are clients

        instrumented = (("the end of a client is not detected", client.patch_end, *ends),)
    for lost, patch, *handed in instrumented:
        if not in_place(patch, patches, *handed):
            report(f"{lost}: Ray {process.ray_version} has changed the code that this package wraps")
            if patch in submitting:
                active.job.is_shared = False
    _trace_waiting(process, parts, patches)
    libraries.join(parts, patches, process.ray_version)
    if not process.is_driver and (job_id := process.job_from_the_beginning()):
        active.job.load_job_trace(job_id, task_is_there=False)
    # Optional: without it spans lack the resources of tasks, but no span is lost.
    if not process.is_client:
        in_place(templates.patch_resources, patches, process, active.held)
        if templates.HAS_SERVE in sys.modules:
            active.join_serve()
    return active


def change(
    active: Tracing,
    settings: Settings,
    recorder: Recorder,
    patches: Patches,
    *,
    before: Settings,
    makes_spans: bool,
    first: Callable[[Tracing], None],
) -> Tracing:
    """Trace with other settings from now on; what has begun keeps those of ``before``.

    ``first`` is called with the instrumentation before calls use it. Parts of Ray that made no spans yet are
    instrumented; the other wrappers stay as they are. May be called in any thread, while calls are made.
    """
    process = active.process
    parts = settings.ray if makes_spans else frozenset()
    more = parts - active.selection.parts
    if templates.SERVE in more:
        active.join_serve = libraries.joining_serve(patches, process.ray_version)
    rate_limits = active.rate_limits
    if settings.rate_limit != before.rate_limit:
        rate_limits = _rate_limits(settings, rate_limits)
    memory = active.memory if active.memory is not None and settings.memory else _memory(settings)
    changed = active.changed(recorder, _options(settings, parts, rate_limits, memory))
    first(changed)
    tracing.active = changed
    _trace_waiting(process, more, patches)
    libraries.join(more, patches, process.ray_version)
    if not process.is_client:
        if templates.HAS_SERVE in sys.modules:
            changed.join_serve()
        # They hold what measures a task and renders its arguments.
        execution.forget_executors()
    return changed


def _options(
    settings: Settings, parts: frozenset[str], rate_limits: RateLimits | None, memory: Memory | None
) -> Options:
    llm = GenerationOptions(settings.llm_phases, settings.llm_usage)
    selection = Selection(parts, settings.include, settings.exclude, internal=settings.internal)
    return Options(selection, _redactor(settings), settings.redact, rate_limits, memory, llm)


def _trace_waiting(process: RayProcess, parts: frozenset[str], patches: Patches) -> None:
    waiting = parts & {"get", "wait", "put"}
    if not waiting:
        return
    from ray_tracing_hooks._ray import objects  # noqa: PLC0415

    patch = objects.patch_client if process.is_client else objects.patch
    if not in_place(partial(patch, parts=waiting), patches):
        report(f"not all of {', '.join(sorted(waiting))} are recorded: Ray {process.ray_version} has changed them")
    if not process.is_client:
        in_place(partial(objects.patch_sizes, parts=waiting), patches)
    if "get" in parts and not in_place(objects.patch_await, patches):
        report(f"await is not recorded: Ray {process.ray_version} has changed the code that this package wraps")


def _rate_limits(settings: Settings, before: RateLimits | None = None) -> RateLimits | None:
    """The limits of these settings, with the calls that were left out ``before`` and that no span has reported yet."""
    if not settings.rate_limit and before is None:
        return None
    from ray_tracing_hooks._ray.rates import RateLimits  # noqa: PLC0415  opt-in

    limits = RateLimits(settings.rate_limit)
    if before is not None:
        limits.left_out = before.left_out
    return limits


def _memory(settings: Settings) -> Memory | None:
    if not settings.memory:
        return None
    from ray_tracing_hooks._ray.memory import of_process  # noqa: PLC0415  opt-in

    return of_process()


def _redactor(settings: Settings) -> Redactor | None:
    if not settings.arguments:
        return None
    from ray_tracing_hooks._record.argument_text import Redactor  # noqa: PLC0415  opt-in

    return Redactor(settings.redact)
