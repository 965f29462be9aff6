"""Encodes the totals as OTLP messages, with the classes that OpenTelemetry generates for them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.encode import SPAN_ID, TRACE_ID
from ray_tracing_hooks._reference import METRICS
from ray_tracing_hooks._ship.metrics.histograms import BOUNDS, ExplicitHistogram, Histogram
from ray_tracing_hooks._ship.metrics.totals import Attributes, Count, Instrument, Key, Totals
from ray_tracing_hooks._version import __version__

_MOST_POINTS = 100
"""Most points per message: a histogram point with exemplars takes up to 1.5 KB, and 6 KB in JSON. The Collector's file
receiver truncates lines at 1 MiB."""

_METRICS = {metric.name: metric for metric in METRICS}
_DESCRIPTIONS = {metric.name: metric.meaning.replace("`", "") for metric in METRICS}


def messages(
    totals: Totals, now_ns: int, since: Mapping[Key, Any] | None = None, since_ns: int = 0
) -> Iterator[pb.MetricsData]:
    """All series, in as many messages as needed.

    They are cumulative; with ``since``, the result of :meth:`Totals.marks` at ``since_ns``, they are deltas since then,
    and series without changes are left out.
    """
    temporality, start_ns = pb.AGGREGATION_TEMPORALITY_CUMULATIVE, totals.start_ns
    if since is not None:
        temporality, start_ns = pb.AGGREGATION_TEMPORALITY_DELTA, since_ns or totals.start_ns
    message, points = pb.MetricsData(), 0
    open_metrics: dict[tuple[int, str], pb.Metric] = {}
    scopes: dict[int, pb.ScopeMetrics] = {}
    for key, instrument in totals.series.items():
        point: Instrument = instrument
        if since is not None and key in since:
            if instrument.state() == since[key]:
                continue
            point = instrument.since(since[key])
        if points == _MOST_POINTS:
            yield message
            message, points, open_metrics, scopes = pb.MetricsData(), 0, {}, {}
        scope = scopes.get(key.resource)
        if scope is None:
            scope = scopes[key.resource] = add_scope(message, totals.resources[key.resource])
        metric = open_metrics.get(key[:2])
        if metric is None:
            metric = open_metrics[key[:2]] = describe_metric(scope, key.metric)
        _add_point(metric, point, key.attributes, start_ns, now_ns, temporality)
        points += 1
    if points:
        yield message


def as_json(message: pb.MetricsData) -> bytes:
    """The message as OTLP-JSON on one line: protobuf's JSON, but with integer enums and hexadecimal ids."""
    found = json_format.MessageToDict(message, use_integers_for_enums=True)
    for resource in found.get("resourceMetrics", ()):
        for scope in resource["scopeMetrics"]:
            for metric in scope["metrics"]:
                data = metric.get("histogram") or metric.get("exponentialHistogram") or {}
                for point in data.get("dataPoints", ()):
                    for exemplar in point.get("exemplars", ()):
                        exemplar.update(_hexadecimal(exemplar))
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def refused(answer: bytes, *, is_json: bool) -> tuple[int, str]:
    """How many points of an accepted request the server rejected, and its message.

    A malformed response counts as empty.
    """
    response = ExportMetricsServiceResponse()
    try:
        if is_json:
            json_format.Parse(answer, response, ignore_unknown_fields=True)
        else:
            response.ParseFromString(answer)
    except Exception:  # noqa: BLE001  the request has been accepted, whatever the response contains
        return 0, ""
    return response.partial_success.rejected_data_points, response.partial_success.error_message


def add_scope(message: pb.MetricsData, resource: bytes) -> pb.ScopeMetrics:
    """The metrics of this encoded resource in the message."""
    resource_metrics = message.resource_metrics.add(resource=Resource.FromString(resource))
    return resource_metrics.scope_metrics.add(scope=InstrumentationScope(name=names.SCOPE, version=__version__))


def describe_metric(scope: pb.ScopeMetrics, name: str) -> pb.Metric:
    """A metric of ours without points yet."""
    return scope.metrics.add(name=name, unit=_METRICS[name].unit, description=_DESCRIPTIONS[name])


def _add_point(
    metric: pb.Metric, point: Instrument, attributes: Attributes, start_ns: int, now_ns: int, temporality: Any
) -> None:
    common: dict[str, Any] = {
        "attributes": [attribute(key, value) for key, value in attributes],
        "start_time_unix_nano": start_ns,
        "time_unix_nano": now_ns,
    }
    if isinstance(point, Count):
        metric.sum.aggregation_temporality = temporality
        metric.sum.is_monotonic = True
        metric.sum.data_points.add(as_int=point.value, **common)
        return
    common |= {"count": point.count, "sum": point.sum / 1e9, "exemplars": _exemplars(point)}
    if point.range is not None:
        common |= {"min": point.range[0] / 1e9, "max": point.range[1] / 1e9}
    if isinstance(point, ExplicitHistogram):
        metric.histogram.aggregation_temporality = temporality
        metric.histogram.data_points.add(bucket_counts=point.buckets, explicit_bounds=BOUNDS, **common)
        return
    first, counts = point.dense()
    metric.exponential_histogram.aggregation_temporality = temporality
    metric.exponential_histogram.data_points.add(
        scale=point.scale,
        zero_count=point.zeros,
        positive=pb.ExponentialHistogramDataPoint.Buckets(offset=first, bucket_counts=counts),
        **common,
    )


def _exemplars(histogram: Histogram) -> list[pb.Exemplar]:
    return [
        pb.Exemplar(as_double=value / 1e9, time_unix_nano=time_ns, trace_id=ids[TRACE_ID], span_id=ids[SPAN_ID])
        for _, (value, time_ns, ids) in sorted(histogram.exemplars.items())
    ]


def attribute(key: str, value: str | bool) -> KeyValue:
    """An attribute of a data point."""
    made = KeyValue(key=key)
    if isinstance(value, bool):
        made.value.bool_value = value
    else:
        made.value.string_value = value
    return made


def _hexadecimal(exemplar: Mapping[str, str]) -> dict[str, str]:
    return {key: base64.b64decode(exemplar[key]).hex() for key in ("traceId", "spanId")}
