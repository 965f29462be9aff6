"""Drivers that ended with an error, or whose process died."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.findings.passed_on import passed_on
from ray_tracing_hooks._insight.analysis.wording import shortened
from ray_tracing_hooks._insight.model.calls import DRIVER
from ray_tracing_hooks._insight.model.errors import error_text
from ray_tracing_hooks._insight.model.merge import as_numpy

KIND = "failed-driver"


def find(analysis: Analysis) -> Iterable[Finding]:
    """A finding for each failed driver, unless it failed with the error of a call: that call's finding says so."""
    table, calls = analysis.table, analysis.calls
    passing = passed_on(analysis)
    for row in np.nonzero((as_numpy(calls.role) == DRIVER) & table.is_failed())[0].tolist():
        if row in passing:
            continue
        failed = f"the driver {quoted(calls.frame_name(row))} failed"
        yield Finding(
            KIND,
            f"{failed}: {shortened(error_text(table.span(row)), 160)}",
            "",
            0.0,
            [row],
            is_failure=True,
            without_errors=failed,
            title=f"{quoted(calls.frame_name(row))} failed",
        )
