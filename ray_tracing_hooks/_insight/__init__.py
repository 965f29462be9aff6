"""Reading recorded spans and finding out what they say. Nothing here imports Ray or OpenTelemetry.

From files to text, each step with the modules to read first::

    ingest      files.py finds files of spans, and load.py reads them in parts, by lines.py or spool.py
    model       table.py has the spans as columns; calls.py joins submissions and executions
    analysis    analysis.py has all figures, each computed on first use
                walk.py goes the critical path back: causes.py and slots.py say what was waited for
                findings/ points out what costs time, a function for each cause
    views       outline.py for `tree`, page/ for the report, exports/ for other viewers

Commands (`_cli`) read with ``ingest``, correct clocks (``model/clocks.py``) and choose spans (``model/runs.py``), and
show ``Analysis`` and views.
"""
