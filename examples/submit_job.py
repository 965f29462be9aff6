"""A job in the trace of the program that submits it.

Start a cluster that takes jobs, submit one, and look at the trace:

    pip install 'ray[default]'
    ray start --head --tracing-startup-hook=ray_tracing_hooks.local:setup
    python examples/submit_job.py
    ray-tracing-hooks tree

You see ``nightly report`` of this program, the job with its status below it, and below that the job's driver.
"""

import sys
import time
from pathlib import Path

import ray
from opentelemetry import trace
from ray.job_submission import JobSubmissionClient

from ray_tracing_hooks import jobs

tracer = trace.get_tracer(__name__)

if __name__ == "__main__":
    ray.init()  # joins the cluster, so that spans of this program are recorded too
    jobs.propagate()
    client = JobSubmissionClient()
    with tracer.start_as_current_span("nightly report"):
        job = client.submit_job(entrypoint=f"{sys.executable} {Path(__file__).with_name('quickstart.py')}")
        while not client.get_job_status(job).is_terminal():
            time.sleep(0.1)
    print(client.get_job_status(job), client.get_job_logs(job))
