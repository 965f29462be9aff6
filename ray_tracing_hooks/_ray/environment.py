"""The context that a driver is started in: ``TRACEPARENT``, ``TRACESTATE``, ``BAGGAGE`` and what else propagators read.

OpenTelemetry's specification "Environment Variables as Context Propagation Carriers". It is the driver's alone. Ray
hands a job's variables on to its workers, but each of their tasks brings the context of its call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from ray_tracing_hooks._guard import guarded


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
