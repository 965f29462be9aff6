"""Metrics of calls, made of their spans on the way: one more sink that reads the spool, and sends what it has counted.

``calls`` takes from a span what is measured, ``totals`` adds it up in ``histograms``, ``message`` writes that as OTLP,
and ``outbox`` sends it. ``sink`` puts them together.
"""
