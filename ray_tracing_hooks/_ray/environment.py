"""The environment of a driver: the trace context in it, and the submitted job that it belongs to.

The context is in ``TRACEPARENT``, ``TRACESTATE``, ``BAGGAGE`` and other variables that propagators read
(OpenTelemetry's specification "Environment Variables as Context Propagation Carriers"). It applies only to the driver:
Ray passes a job's variables on to its workers, but each of their tasks carries the context of its call. A submitted job
may also have the context in its metadata, where :mod:`ray_tracing_hooks.jobs` puts it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._safety.guard import guarded

_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable that describes a submitted job to its driver (Ray 2.60 ``dashboard/modules/job/job_supervisor.py``)."""


def incoming(environ: Mapping[str, str], current: Context) -> Context:
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


def describe(environ: Mapping[str, str], program: str, namespace: str) -> dict[str, str]:
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
