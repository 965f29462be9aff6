"""Submitted jobs: a span from the time when Ray starts a job to its end, with its status.

Ray's actor ``JobSupervisor`` starts a job's program and knows how it ends (Ray 2.60
``dashboard/modules/job/job_supervisor.py``). Its method ``run`` gets our executor, which wraps two attributes of the
instance: ``_get_driver_env_vars``, which returns the environment of the program in addition to that of its cluster, and
``_job_info_client.put_status``, which reports the end of the job to the cluster.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.environment import from_environment, to_environment
from ray_tracing_hooks._ray.propagation import reference
from ray_tracing_hooks._ray.templates import INTERNAL
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.guard import failed

PART = "job"
"""The part in ``RAY_TRACING_RAY``. Without it, the program of a job still gets the context of its submission."""

_FAILED, _ENDED = "FAILED", {"SUCCEEDED", "FAILED", "STOPPED"}
"""Values of ``JobStatus`` (Ray 2.60 ``dashboard/modules/job/common.py``)."""


def executor(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the executor of that method, so that it begins the job's span and records its end."""

    @functools.wraps(function)
    async def run(supervisor: Any, *args: Any, **kwargs: Any) -> Any:
        active = tracing.active
        if active is not None:
            try:
                _begin(active, supervisor)
            except Exception as error:  # noqa: BLE001  the user's job must run whatever fails here
                failed("tracing a submitted job", error)
        return await function(supervisor, *args, **kwargs)

    return run


def _begin(active: tracing.Tracing, supervisor: Any) -> None:
    environment_of, put_status = supervisor._get_driver_env_vars, supervisor._job_info_client.put_status  # noqa: SLF001
    context = propagate.extract(supervisor._metadata)  # noqa: SLF001
    if not trace.get_current_span(context).get_span_context().is_valid:
        context = from_environment(os.environ, context)
    recorder = active.recorder
    parent = recorder.parent(context)
    trace_id, flags = recorder.decide(parent)
    recording = recorder.of(flags)
    if recording is not None and PART in active.selection.parts:
        attributes = {**active.whereabouts.attributes(), names.RAY_SUBMISSION_ID: supervisor._job_id}  # noqa: SLF001
        span = recording.start(
            Template(names.JOB, INTERNAL, attributes), trace_id, flags, parent, reference(context, parent)
        )
        supervisor._job_info_client.put_status = _recording_end(put_status, span)  # noqa: SLF001
        context = trace.set_span_in_context(span, context)
    supervisor._get_driver_env_vars = _environment(environment_of, context)  # noqa: SLF001


def _environment(original: Callable[..., dict[str, str]], context: Context) -> Callable[..., dict[str, str]]:
    @functools.wraps(original)
    def with_context(*args: Any, **kwargs: Any) -> dict[str, str]:
        return {**original(*args, **kwargs), **to_environment(context)}

    return with_context


def _recording_end(original: Callable[..., Any], span: RecordedSpan) -> Callable[..., Any]:
    @functools.wraps(original)
    async def put_status(*args: Any, **kwargs: Any) -> Any:
        try:
            status = kwargs.get("status", args[1] if len(args) > 1 else None)
            # Before the cluster knows it, since a program that waits for the job may look for its span.
            _end(span, str(getattr(status, "value", status)), kwargs.get("driver_exit_code"))
        except Exception as error:  # noqa: BLE001  as above
            failed("tracing the end of a submitted job", error)
        return await original(*args, **kwargs)

    return put_status


def _end(span: RecordedSpan, status: str, exit_code: Any) -> None:
    if status not in _ENDED:
        return
    span.set_attribute(names.RAY_JOB_STATUS, status)
    if isinstance(exit_code, int):
        span.set_attribute(names.EXIT_CODE, exit_code)
    if status == _FAILED:
        why = f"exit code {exit_code}" if isinstance(exit_code, int) else "it could not be started"
        span.set_status(trace.StatusCode.ERROR, f"the job failed: {why}")
        span.set_attribute(names.ERROR_TYPE, names.JOB_FAILED)
    span.end()
