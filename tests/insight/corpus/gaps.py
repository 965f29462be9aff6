"""What the analysis does not do yet: a gap that is closed makes the test fail, so that it is taken out here."""

from __future__ import annotations

GAPS: dict[str, str] = {}
"""The reason by ``PROGRAM FORM CHECK``: see :meth:`corpus.judging.Judged.complaints` for the checks."""
