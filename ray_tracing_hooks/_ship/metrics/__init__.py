"""Metrics of calls, computed from their spans by a stage that reads the spool in parallel with the deliveries.

``calls`` extracts the measurements from spans, and ``totals`` aggregates them in ``histograms``. ``message`` encodes
them as OTLP, ``delivery`` adds the figures of the deliveries, ``outbox`` sends them, and ``export`` decides when.
``stage`` puts the parts together.
"""
