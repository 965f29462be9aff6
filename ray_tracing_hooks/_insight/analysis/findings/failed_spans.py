"""Failed spans outside of calls and drivers that failed: requests of Ray Serve, and spans of the program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.error_types import types_of
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.wording import count
from ray_tracing_hooks._insight.model.calls import DRIVER, EXECUTION, OTHER, SUBMISSION
from ray_tracing_hooks._insight.model.merge import as_numpy

KIND = "failed-spans"

_OF_LIBRARY = re.compile(r" ray\.(data|train|tune|rllib)\b")
"""Runs, operators and trials: their calls fail too, and other findings say what that costs."""


def find(analysis: Analysis) -> Iterable[Finding]:
    """The failed spans with no failed span right below them, in one finding.

    What passes an error on is not counted. An exception that leaves several methods of deployments, and fails their
    request, counts once, at the method that raised it.
    """
    table, calls = analysis.table, analysis.calls
    is_failed, role = table.is_failed(), as_numpy(calls.role)
    failed = np.nonzero(is_failed)[0].tolist()
    above_failed = {table.parent[row] for row in failed} | _passing_on(analysis, failed)
    within = {row for row in failed if role[row] in {EXECUTION, DRIVER}}
    rows = [
        row
        for row in failed
        if role[row] in {OTHER, SUBMISSION}
        and row not in above_failed
        and calls.frame[row] not in within
        and not _OF_LIBRARY.search(table.name_of(row))
    ]
    if not rows:
        return
    by_name = Counter(table.name_of(row) for row in rows)
    (name, _), *others = by_name.most_common()
    more = f" and {count(len(others), 'other name')}" if others else ""
    yield Finding(
        KIND,
        f"{count(len(rows), 'span')} of {quoted(name)}{more} failed: {types_of(table, rows)}",
        "",
        0.0,
        rows,
        {"spans": len(rows)},
        is_failure=True,
        without_errors=f"{count(len(rows), 'span')} of {quoted(name)}{more} failed",
        title=f"{quoted(name)}{more} failed",
    )


def _passing_on(analysis: Analysis, failed: Sequence[int]) -> set[int]:
    """Failed requests and methods of deployments with a failed method below them that has the same type of error.

    That of a server is the status of its response.
    """
    table, spans = analysis.table, analysis.serve_spans
    if spans is None:
        return set()
    found: set[int] = set()
    for row in failed:
        error, above = table.attribute(row, names.ERROR_TYPE), spans.above[row]
        while above >= 0 and above not in found:
            if spans.is_failed[above] and (spans.is_server[above] or table.attribute(above, names.ERROR_TYPE) == error):
                found.add(int(above))
            above = spans.above[above]
    return found
