"""Submits jobs from within a span: one that succeeds, one that fails, one that is stopped, and one by command; and
before that one without a trace, whose driver has no root span.

Prints the trace and span that they are submitted in, and how they ended. Arguments: the address of the cluster's
dashboard, and the program to submit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from ray.job_submission import JobSubmissionClient

from ray_tracing_hooks import jobs

address, program = sys.argv[1:]
trace.set_tracer_provider(TracerProvider())
client = JobSubmissionClient(address)
command = f"{sys.executable} {program}"
alone = client.submit_job(entrypoint=f"{command} 0", runtime_env={"env_vars": {"RAY_TRACING_ROOT_SPAN": "0"}})
for _ in range(2):
    jobs.propagate()

with trace.get_tracer("submitting").start_as_current_span("submits") as span:
    of_span = span.get_span_context()
    submitted = [client.submit_job(entrypoint=f"{command} {code}") for code in (0, 3)]
    traceparent = f"00-{of_span.trace_id:032x}-{of_span.span_id:016x}-01"
    stays = client.submit_job(entrypoint="sleep 100", metadata={"traceparent": traceparent, "of": "the user"})
metadata = client.get_job_info(stays).metadata

subprocess.run(
    [
        os.path.join(os.path.dirname(sys.executable), "ray"),
        "job",
        "submit",
        "--address",
        address,
        "--",
        *command.split(),
        "0",
    ],
    env={**os.environ, "TRACEPARENT": traceparent, "RAY_JOB_SUBMIT_HOOK": "ray_tracing_hooks.jobs.propagate"},
    check=True,
    stdout=subprocess.DEVNULL,
)
while client.get_job_status(stays) == "PENDING":
    time.sleep(0.1)
client.stop_job(stays)
for job in (alone, *submitted, stays):
    while not client.get_job_status(job).is_terminal():
        time.sleep(0.1)
print("RESULT " + json.dumps([f"{of_span.trace_id:032x}", f"{of_span.span_id:016x}", metadata, alone]))
