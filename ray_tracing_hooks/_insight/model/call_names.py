"""How calls are named: by their function, or by what `.options(name=...)` gave them."""

from __future__ import annotations

from ray_tracing_hooks import names

MOST_NAMES = 8
"""Of one function; with more of them, or with names that are hardly used twice, each call has a name of its own."""


def are_few(different: int, calls: int) -> bool:
    """Whether calls are to be told apart by the names that they were given."""
    return different <= MOST_NAMES and calls >= 2 * different


def call_name(span_name: str) -> str:
    """The function of a submission's or execution's name, any other name as it is."""
    for named in (names.submission_name(""), names.execution_name("")):
        if span_name.endswith(named):
            return span_name[: -len(named)]
    return span_name
