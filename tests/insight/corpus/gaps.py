"""What the analysis does not do yet: a gap that is closed makes the test fail, so that it is taken out here."""

from __future__ import annotations

GAPS: dict[str, str] = {
    "blocked_event_loop slower first": "Ray's own time between two calls is then too long to tell a busy loop from it",
    "coroutine_computes faster cost": "less than 20 ms of a loop that stands still is not told from Ray's own time",
    "late_first_step faster first": "a training that starts within a second is no finding, so that its workers are one",
}
"""The reason by ``PROGRAM FORM CHECK``: see :meth:`corpus.judging.Judged.complaints` for the checks."""
