"""Metrics of calls, made of their spans: a stage that reads the spool beside the deliveries of the spans.

``calls`` takes from a span what is measured, and ``totals`` adds it up in ``histograms``. ``message`` writes that as
OTLP, ``outbox`` sends it, and ``export`` says when. ``stage`` puts them together.
"""
