"""The signals of OpenTelemetry that are recorded and delivered. Their OTLP messages differ in names and items alone:
what has the same place in them has the same number in protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ray_tracing_hooks._formats.otlp_json import log_record_json, span_json
from ray_tracing_hooks._formats.protobuf import FormatError


class Signal(NamedTuple):
    """One signal.

    Attributes:
        name: As in the names of environment variables, in lower case.
        items: What is recorded, for messages.
        item_json: An encoded item as a JSON object. Raises FormatError if it is none.
        of_resources: The member of OTLP-JSON that holds what is of each resource.
        of_scopes: In it that of each scope.
        of_items: In it the items.
        rejected: The member of an answer that says how many were not taken.
    """

    name: str
    items: str
    item_json: Callable[[bytes], str]
    of_resources: str
    of_scopes: str
    of_items: str
    rejected: str

    def line(self, resource: str, scope: str, items: Sequence[str]) -> str:
        """One line of a file, newline included."""
        return self.document([self.part(resource, scope, items)]) + "\n"

    def document(self, parts: Sequence[str]) -> str:
        """Parts of one resource each, as OTLP-JSON: a ``TracesData``, or whatever it is of this signal."""
        return f'{{"{self.of_resources}":[{",".join(parts)}]}}'

    def part(self, resource: str, scope: str, items: Sequence[str]) -> str:
        """Items of one resource and scope, all given as JSON."""
        joined = ",".join(items)
        return f'{{"resource":{resource},"{self.of_scopes}":[{{"scope":{scope},"{self.of_items}":[{joined}]}}]}}'


TRACES = Signal("traces", "spans", span_json, "resourceSpans", "scopeSpans", "spans", "rejectedSpans")
LOGS = Signal("logs", "log records", log_record_json, "resourceLogs", "scopeLogs", "logRecords", "rejectedLogRecords")


def _no_item(_encoded: bytes) -> str:
    raise FormatError("metrics are not recorded as encoded items")


METRICS = Signal("metrics", "metrics", _no_item, "resourceMetrics", "scopeMetrics", "metrics", "rejectedDataPoints")
"""Made by the shipper, of spans."""
