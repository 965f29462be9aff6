"""Executions and drivers that failed with the error of a call of theirs, which they passed on."""

from __future__ import annotations

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.error_types import READ
from ray_tracing_hooks._insight.model.calls import EXECUTION
from ray_tracing_hooks._insight.model.errors import error_text
from ray_tracing_hooks._insight.model.merge import as_numpy

_OF_A_DEATH = ("WorkerCrashedError", "ActorDiedError", "OutOfMemoryError", "NodeDiedError", "WorkerDiedError")
"""How the types of errors end that a caller gets from a call whose worker died."""


def passed_on(analysis: Analysis) -> dict[int, int]:
    """The frames that passed an error on, with the execution that they got it from.

    The error of the caller has the type and the message of the call's, or is one of those that Ray raises if a worker
    dies. At most ``READ`` errors are compared; one that is not compared is taken for the caller's own.
    """
    table, calls = analysis.table, analysis.calls
    is_failed, is_dead = analysis.is_failed, table.is_dead()
    found: dict[int, int] = {}
    compared = 0
    for row in np.nonzero(is_failed & (as_numpy(calls.role) == EXECUTION))[0].tolist():
        submission = calls.submission[calls.call_of[row]]
        frame = calls.frame[submission] if submission >= 0 else -1
        if not 0 <= frame < len(table) or not is_failed[frame] or frame in found or not calls.is_last_attempt(row):
            continue
        if table.end_or_now(row) > table.end_or_now(frame):
            continue
        if (compared := compared + 1) > READ:
            break
        kind = str(table.attribute(frame, names.ERROR_TYPE) or "")
        is_of_death = is_dead[row] and kind.endswith(_OF_A_DEATH)
        if is_of_death or error_text(table.span(row)) == error_text(table.span(frame)):
            found[frame] = row
    return found
