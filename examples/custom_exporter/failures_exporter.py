"""An exporter of your own: it appends a line to a file for each call that failed.

Install it on each node, name it, and run a job that fails in part:

    pip install examples/custom_exporter
    export FAILURES_FILE=/tmp/failures.txt RAY_TRACING_EXPORTERS=local,failures
    python examples/custom_exporter/failures_exporter.py
    cat /tmp/failures.txt

You see one line, with the trace to look at: ``ray-tracing-hooks tree --trace ID``. Exporters run in a process of their
own on each node, so a slow one does not delay the program.
"""

import os

import ray
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind


class FailuresExporter(SpanExporter):
    """``pyproject.toml`` names it ``failures``. It is created without arguments, so variables configure it."""

    def __init__(self):
        self.path = os.environ["FAILURES_FILE"]

    def export(self, spans):
        with open(self.path, "a") as file:
            for span in spans:
                if span.kind is SpanKind.CONSUMER and not span.status.is_ok:
                    print(f"{span.context.trace_id:032x}", span.name, span.attributes.get("error.type"), file=file)
        return SpanExportResult.SUCCESS  # after FAILURE, the spans come again


@ray.remote
def divide(number):
    return 12 / number


if __name__ == "__main__":
    ray.init(_tracing_startup_hook="ray_tracing_hooks:setup")
    results = [divide.remote(number) for number in (3, 0, 4)]
    ray.wait(results, num_returns=len(results))
