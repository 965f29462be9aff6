"""What a driver is started in: the context that its environment tells of, and the job that it is the driver of.

The context is in ``TRACEPARENT``, ``TRACESTATE``, ``BAGGAGE`` and what else propagators read (OpenTelemetry's
specification "Environment Variables as Context Propagation Carriers"). It is the driver's alone: Ray hands a job's
variables on to its workers, but each of their tasks brings the context of its call. A submitted job may also have the
context in its metadata, where :mod:`ray_tracing_hooks.jobs` puts it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import guarded

_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Where Ray tells the driver of a submitted job what it is (Ray 2.60 ``dashboard/modules/job/job_supervisor.py``)."""


def incoming(environ: Mapping[str, str], current: Context) -> Context:
    """``current`` with what the environment brings along, unless the program has a span around it already.

    What is malformed is as if it were not there, as with the headers of a request.
    """
    if trace.get_current_span(current).get_span_context().is_valid:
        return current
    with guarded("reading the context in the environment"):
        found = from_environment(environ, current)
        if found is current:
            # Where the process that started this program of a job is not traced.
            found = propagate.extract(_job_metadata(environ), current)
        return found
    return current


def from_environment(environ: Mapping[str, str], current: Context) -> Context:
    """``current`` with what the environment brings along."""
    names_of = {name: _variable(name) for name in propagate.get_global_textmap().fields}
    carrier = {name: environ[variable] for name, variable in names_of.items() if environ.get(variable)}
    return propagate.extract(carrier, current) if carrier else current


def to_environment(context: Context) -> dict[str, str]:
    """The variables that tell a process of ``context``."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return {_variable(name): value for name, value in carrier.items()}


def _variable(header: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", header).upper()


def describe(environ: Mapping[str, str], program: str, namespace: str) -> dict[str, str]:
    """What the span of a driver says of it; ``program`` is what Python runs, without arguments: they may be secrets."""
    told = {names.RAY_ENTRYPOINT: os.path.abspath(program) if os.path.exists(program) else program}
    told |= {names.RAY_NAMESPACE: namespace, names.RAY_SUBMISSION_ID: _submission_id(environ)}
    return {key: value for key, value in told.items() if value}


def _submission_id(environ: Mapping[str, str]) -> str:
    return _job_metadata(environ).get("job_submission_id", "")


def _job_metadata(environ: Mapping[str, str]) -> dict[str, str]:
    try:
        found = json.loads(environ.get(_JOB_CONFIG, "{}"))["metadata"].items()
    except (ValueError, KeyError, TypeError, AttributeError):  # not a submitted job, or another Ray
        return {}
    return {key: value for key, value in found if isinstance(value, str)}
