"""Metrics by OpenTelemetry's SDK: of calls, of the delivery of spans, and of the node.

``provider`` makes the instruments, and ``exporters`` are the destinations. ``stage`` reads the spool in parallel with
the deliveries, and measures calls by their spans.
"""
