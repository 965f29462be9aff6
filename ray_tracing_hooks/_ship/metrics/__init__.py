"""Metrics by OpenTelemetry's SDK: of calls, of the delivery of spans, and of the node.

``calls`` extracts the measurements from spans, and ``node`` samples processors, memory and GPUs. ``provider`` makes the
instruments, and ``exporters`` are the destinations. ``stage`` reads the spool in parallel with the deliveries.
"""
