"""An exporter for Serve's own tracing: it writes the names and traces of spans to a file."""

import os

from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult


class Exporter(SpanExporter):
    def export(self, spans):
        with open(os.environ["EXPORTED"], "a") as file:
            file.writelines(f"{span.context.trace_id:032x} {span.name}\n" for span in spans)
        return SpanExportResult.SUCCESS


def make():
    return [SimpleSpanProcessor(Exporter())]
