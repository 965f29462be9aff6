"""Instrumentation of Ray Data.

An execution of a dataset is a span, and below it is one for each operator, and below these are the calls that the
operator makes. ``executions`` wraps the executor, ``operators``, ``submitting``, ``totals``, ``backpressure``,
``timeline`` and ``spilling`` are what it records of them, ``tasks`` names the calls. In the workers, ``blocks`` records
what their tasks made, and ``threads`` gives the user's functions their context. ``iteration`` is the consumer's side.
"""
