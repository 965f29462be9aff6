"""What the analysis does not do yet: a gap that is closed makes the test fail, so that it is taken out here."""

from __future__ import annotations

NOT_RECORDED = frozenset({"one_trial_at_a_time", "skewed_keys", "slow_trial"})
"""Programs that wait for an idle machine: ``python -m corpus record --missing``."""

_BUSY = "The machine was busy when it was recorded: the start and the end of Ray Train took most of the difference"
GAPS = {
    "late_rank planted bound": _BUSY,
    "rank_becomes_late planted bound": _BUSY,
    "late_rank_and_restart planted cost": _BUSY,
}
"""The reason by ``PROGRAM FORM CHECK``: see :meth:`corpus.judging.Judged.complaints` for the checks."""
