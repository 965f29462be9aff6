"""The signals of OpenTelemetry that are recorded and delivered.

Their OTLP messages differ only in names and items: corresponding fields have the same numbers in protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ray_tracing_hooks._formats.otlp_json import log_record_json, span_json
from ray_tracing_hooks._formats.protobuf import FormatError


class Signal(NamedTuple):
    """One signal.

    Attributes:
        name: In lower case, as in the names of environment variables.
        items: The word for its items in messages.
        item_json: Converts an encoded item to a JSON object. Raises FormatError if it is malformed.
        of_resources: The member of OTLP-JSON with the list of resources.
        of_scopes: The member of a resource with its list of scopes.
        of_items: The member of a scope with its list of items.
        rejected: The member of a response with the count of rejected items.
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
        # Half a megabyte, so it is not copied more often than needed.
        before, after = self._around(resource, scope)
        return "".join((self.beginning, before, ",".join(items), after, "]}\n"))

    def document(self, parts: Sequence[str]) -> str:
        """Parts of one resource each as OTLP-JSON: a ``TracesData``, or its counterpart for this signal."""
        return f"{self.beginning}{','.join(parts)}]}}"

    def part(self, resource: str, scope: str, items: Sequence[str]) -> str:
        """The items of one resource and scope, all given as JSON."""
        before, after = self._around(resource, scope)
        return f"{before}{','.join(items)}{after}"

    @property
    def beginning(self) -> str:
        """What each line of a file begins with."""
        return f'{{"{self.of_resources}":['

    def _around(self, resource: str, scope: str) -> tuple[str, str]:
        return f'{{"resource":{resource},"{self.of_scopes}":[{{"scope":{scope},"{self.of_items}":[', "]}]}"


TRACES = Signal("traces", "spans", span_json, "resourceSpans", "scopeSpans", "spans", "rejectedSpans")
LOGS = Signal("logs", "log records", log_record_json, "resourceLogs", "scopeLogs", "logRecords", "rejectedLogRecords")


def _no_item(_encoded: bytes) -> str:
    raise FormatError("metrics are not recorded as encoded items")


METRICS = Signal("metrics", "metrics", _no_item, "resourceMetrics", "scopeMetrics", "metrics", "rejectedDataPoints")
"""Computed by the shipper from spans."""
