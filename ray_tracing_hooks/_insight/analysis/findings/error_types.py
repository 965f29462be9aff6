"""The errors of failed spans, for the sentences of findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.findings.finding import quoted
from ray_tracing_hooks._insight.analysis.wording import count
from ray_tracing_hooks._insight.model.errors import error_type
from ray_tracing_hooks._insight.model.table import Table

READ = 1000
"""The most spans that are read from files for their error type, which may be in an event."""

_SHOWN = 3


def types_of(table: Table, rows: Sequence[int]) -> str:
    """The most frequent types of the errors of these spans, with their numbers: ``ValueError x3, KeyError``."""
    types: Counter[str] = Counter()
    for row in rows[:READ]:
        given = table.attribute(row, names.ERROR_TYPE)
        types[str(given or error_type(table.span(row)) or "without a type")] += 1
    several = ", ".join(
        f"{quoted(name)} x{number:,}" if number > 1 else quoted(name) for name, number in types.most_common(_SHOWN)
    )
    more = len(types) - _SHOWN
    return several + (f" and {count(more, 'other type')}" if more > 0 else "")
