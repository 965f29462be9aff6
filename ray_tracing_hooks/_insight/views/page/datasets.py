"""The executions of datasets for the page: the longest ones, with times from the start of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.pipelines import Pipelines
from ray_tracing_hooks._insight.views.datasets import datasets
from ray_tracing_hooks._insight.views.page.report import NumberOf
from ray_tracing_hooks._insight.views.redaction import Redaction

_MOST = 50
"""Executions, and likewise iterations, that the page holds. Each operator may have a hundred moments."""

_KEYS = tuple(value for key, value in vars(names).items() if key.startswith("RAY_DATA_"))


def shown(pipelines: Pipelines, number: NumberOf, begin: int, redaction: Redaction) -> dict[str, Any]:
    """The member ``datasets`` of the page.

    Nearly all of it are attributes of spans, so it is empty if one of them is redacted.
    """
    if not redaction.attributes or any(map(redaction.hides, _KEYS)):
        return {"executions": [], "iterations": [], "left_out": 0}
    longest = _longest(pipelines)
    found = datasets(longest, number)
    for each in _described(found):
        each["start"] = each.pop("start_unix_nano") - begin
    return found | {"left_out": len(pipelines.executions) - len(longest.executions)}


def rows_of(pipelines: Pipelines) -> list[int]:
    """The spans that it refers to, which the page always keeps."""
    longest = _longest(pipelines)
    return [
        *(row for one in longest.executions for row in (one.row, *(each.row for each in one.operators))),
        *(each.row for each in longest.iterations),
    ]


def _longest(pipelines: Pipelines) -> Pipelines:
    executions = sorted(pipelines.executions, key=lambda each: -each.duration)[:_MOST]
    iterations = sorted(pipelines.iterations, key=lambda each: each.start - each.end)[:_MOST]
    return Pipelines(sorted(executions, key=lambda each: each.start), sorted(iterations, key=lambda each: each.start))


def _described(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything in it that has a start."""
    yield from found["iterations"]
    for execution in found["executions"]:
        yield execution
        for operator in execution["operators"]:
            yield operator
            yield from operator["held_back_at"]
