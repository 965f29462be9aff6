"""What a driver is started in: the context that its environment tells of, and the job that it is the driver of.

The context is in ``TRACEPARENT``, ``TRACESTATE``, ``BAGGAGE`` and what else propagators read (OpenTelemetry's
specification "Environment Variables as Context Propagation Carriers"). It is the driver's alone: Ray hands a job's
variables on to its workers, but each of their tasks brings the context of its call.
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
    carrier = {
        name: value
        for name in propagate.get_global_textmap().fields
        if (value := environ.get(re.sub(r"[^A-Za-z0-9_]", "_", name).upper()))
    }
    if carrier:
        with guarded("reading the context in the environment"):
            return propagate.extract(carrier, current)
    return current


def describe(environ: Mapping[str, str], program: str, namespace: str) -> dict[str, str]:
    """What the span of a driver says of it; ``program`` is what Python runs, without arguments: they may be secrets."""
    told = {names.RAY_ENTRYPOINT: os.path.abspath(program) if os.path.exists(program) else program}
    told |= {names.RAY_NAMESPACE: namespace, names.RAY_SUBMISSION_ID: _submission_id(environ)}
    return {key: value for key, value in told.items() if value}


def _submission_id(environ: Mapping[str, str]) -> str:
    try:
        found = json.loads(environ.get(_JOB_CONFIG, "{}"))["metadata"]["job_submission_id"]
    except (ValueError, KeyError, TypeError):  # not a submitted job, or another Ray
        return ""
    return found if isinstance(found, str) else ""
