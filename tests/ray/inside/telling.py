"""Submits one job from within a span of a traced process, and waits for its end.

Arguments: the address of the cluster's dashboard, and the command of the job.
"""

from __future__ import annotations

import json
import sys
import time

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from ray.job_submission import JobSubmissionClient

from ray_tracing_hooks import jobs

trace.set_tracer_provider(TracerProvider())
jobs.propagate()
client = JobSubmissionClient(sys.argv[1])
with trace.get_tracer("telling").start_as_current_span("submits") as span:
    job = client.submit_job(entrypoint=" ".join(sys.argv[2:]))
while not client.get_job_status(job).is_terminal():
    time.sleep(0.1)
print(client.get_job_logs(job))
print("RESULT " + json.dumps([f"{span.get_span_context().trace_id:032x}", client.get_job_status(job)]))
