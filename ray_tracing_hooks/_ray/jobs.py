"""Submitted jobs: a span from the time when Ray starts a job to its end, with its status.

Ray's actor ``JobSupervisor`` starts a job's program and knows how it ends (Ray 2.60
``dashboard/modules/job/job_supervisor.py``). Its method ``run`` gets our executor, which wraps two attributes of the
instance: ``_get_driver_env_vars``, which returns the environment of the program in addition to that of its cluster, and
``_job_info_client.put_status``, which reports the end of the job to the cluster.

The environment of a driver has the submitted job that it belongs to, and a trace context.
The context is in ``TRACEPARENT``, ``TRACESTATE``, ``BAGGAGE`` and other variables that propagators read
(OpenTelemetry's specification "Environment Variables as Context Propagation Carriers"). It applies only to the driver:
Ray passes a job's variables on to its workers, but each of their tasks carries the context of its call. A submitted job
may also have the context in its metadata, where :mod:`ray_tracing_hooks.jobs` puts it.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.guard import guarded

_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable that describes a submitted job to its driver (Ray 2.60 ``dashboard/modules/job/job_supervisor.py``)."""


def from_driver_environment(environ: Mapping[str, str], current: Context) -> Context:
    """``current`` with the context of the environment, unless a span is already current.

    Malformed values are ignored, as in the headers of a request.
    """
    if trace.get_current_span(current).get_span_context().is_valid:
        return current
    with guarded("reading the context in the environment"):
        found = from_environment(environ, current)
        if found is current:
            # If the process that started the program of this job is not traced.
            found = propagate.extract(_job_metadata(environ), current)
        return found
    return current


def from_environment(environ: Mapping[str, str], current: Context) -> Context:
    """``current`` with the context of the environment."""
    names_of = {name: _variable(name) for name in propagate.get_global_textmap().fields}
    carrier = {name: environ[variable] for name, variable in names_of.items() if environ.get(variable)}
    return propagate.extract(carrier, current) if carrier else current


def is_of_job_alone(environ: Mapping[str, str]) -> bool:
    """Whether the context of the environment is just the span of this submitted job: nobody has passed a trace to it.

    A trace can be passed in the metadata of the job, or in the variables of its runtime environment.
    """
    if not _submission_id(environ):
        return False
    variables = _job_config(environ, lambda config: config["runtime_env"]["env_vars"])
    passed = from_environment(variables, propagate.extract(_job_metadata(environ), Context()))
    return not trace.get_current_span(passed).get_span_context().is_valid


def to_environment(context: Context) -> dict[str, str]:
    """The environment variables that propagate ``context`` to a process."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return {_variable(name): value for name, value in carrier.items()}


def _variable(header: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", header).upper()


def describe_driver(environ: Mapping[str, str], program: str, namespace: str) -> dict[str, str]:
    """The attributes of a driver's span; ``program`` has no arguments, since these may be secrets."""
    attributes = {names.RAY_ENTRYPOINT: os.path.abspath(program) if os.path.exists(program) else program}
    attributes |= {names.RAY_NAMESPACE: namespace, names.RAY_SUBMISSION_ID: _submission_id(environ)}
    return {key: value for key, value in attributes.items() if value}


def _submission_id(environ: Mapping[str, str]) -> str:
    return _job_metadata(environ).get("job_submission_id", "")


def _job_metadata(environ: Mapping[str, str]) -> dict[str, str]:
    return _job_config(environ, lambda config: config["metadata"])


def _job_config(environ: Mapping[str, str], part: Callable[[Any], Any]) -> dict[str, str]:
    """The texts in a part of what describes the submitted job of this driver."""
    try:
        found = part(json.loads(environ.get(_JOB_CONFIG, "{}"))).items()
    except (ValueError, KeyError, TypeError, AttributeError):  # not a submitted job, or another Ray
        return {}
    return {key: value for key, value in found if isinstance(value, str)}


PART = "job"
"""The part in ``RAY_TRACING_RAY``. Without it, the program of a job still gets the context of its submission."""

_FAILED, _ENDED = "FAILED", {"SUCCEEDED", "FAILED", "STOPPED"}
"""Values of ``JobStatus`` (Ray 2.60 ``dashboard/modules/job/common.py``)."""


def executor(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the executor of that method, so that it begins the job's span and records its end."""

    @functools.wraps(function)
    async def run(supervisor: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing.active is not None:
            with guarded("tracing a submitted job"):
                _begin(tracing.active, supervisor)
        return await function(supervisor, *args, **kwargs)

    return run


def _begin(active: tracing.Tracing, supervisor: Any) -> None:
    environment_of, put_status = supervisor._get_driver_env_vars, supervisor._job_info_client.put_status  # noqa: SLF001
    context = propagate.extract(supervisor._metadata)  # noqa: SLF001
    if not trace.get_current_span(context).get_span_context().is_valid:
        context = from_environment(os.environ, context)
    if PART in active.selection.parts:
        attributes = {names.RAY_SUBMISSION_ID: supervisor._job_id}  # noqa: SLF001
        inside, span = library_spans.begin(active, names.JOB, context, attributes)
        if span is not None:
            supervisor._job_info_client.put_status = _recording_end(put_status, span)  # noqa: SLF001
            context = inside
    supervisor._get_driver_env_vars = _environment(environment_of, context)  # noqa: SLF001


def _environment(original: Callable[..., dict[str, str]], context: Context) -> Callable[..., dict[str, str]]:
    @functools.wraps(original)
    def with_context(*args: Any, **kwargs: Any) -> dict[str, str]:
        return {**original(*args, **kwargs), **to_environment(context)}

    return with_context


def _recording_end(original: Callable[..., Any], span: RecordedSpan) -> Callable[..., Any]:
    @functools.wraps(original)
    async def put_status(*args: Any, **kwargs: Any) -> Any:
        with guarded("tracing the end of a submitted job"):
            status = kwargs.get("status", args[1] if len(args) > 1 else None)
            # Before the cluster knows it, since a program that waits for the job may look for its span.
            _end(span, str(getattr(status, "value", status)), kwargs.get("driver_exit_code"))
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
