"""The tabs of the page for libraries: requests to Ray Serve, executions of datasets, and ranks of Ray Train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.generated import Engines
from ray_tracing_hooks._insight.analysis.pipelines import Pipelines
from ray_tracing_hooks._insight.analysis.requests import Requests
from ray_tracing_hooks._insight.analysis.training import Attempt, Step, TrainRun
from ray_tracing_hooks._insight.views.datasets import datasets
from ray_tracing_hooks._insight.views.page.pack import LONGEST_NAME, truncated
from ray_tracing_hooks._insight.views.page.report import NumberOf
from ray_tracing_hooks._insight.views.redaction import Redaction
from ray_tracing_hooks._insight.views.requests import generations, requests

_MOST = 200
"""Routes, parts and methods that the page holds, of each."""


def requests_shown(found: Requests | None, engines: Engines | None, number: NumberOf) -> dict[str, Any] | None:
    """The member ``requests`` of the page, as in the document of a summary: with ``generations``, and how many items
    are ``left_out``. None if there are none.
    """
    if found is None:
        return None
    lists: list[Sequence[Any]] = [found.routes, found.parts, found.methods]
    lists += [engines.models, engines.first_chunks] if engines is not None else []
    shown: dict[str, Any] = _short(requests(found, number, _MOST))
    shown["generations"] = _short(generations(engines, (), number, _MOST))
    shown["left_out"] = sum(max(0, len(each) - _MOST) for each in lists)
    return shown


def _short(value: Any) -> Any:
    """The value with long texts truncated."""
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    return truncated(value, LONGEST_NAME) if isinstance(value, str) else value


def rows_of_requests(found: Requests | None, engines: Engines | None) -> list[int]:
    """The spans that it refers to, which the page always keeps."""
    if found is None:
        return []
    return [
        *(each.slowest for each in found.routes[:_MOST]),
        *(each.longest[0] for each in found.methods[:_MOST] if each.longest),
        *(each.slowest for each in (engines.first_chunks if engines is not None else [])[:_MOST]),
    ]


_MOST_DATASETS = 50
"""Executions, and likewise iterations, that the page holds. Each operator may have a hundred moments."""

_DATASET_KEYS = tuple(value for key, value in vars(names).items() if key.startswith("RAY_DATA_"))


def datasets_shown(pipelines: Pipelines, number: NumberOf, begin: int, redaction: Redaction) -> dict[str, Any]:
    """The member ``datasets`` of the page: the longest executions, with times from the start of the run.

    Nearly all of it are attributes of spans, so it is empty if one of them is redacted.
    """
    if not redaction.attributes or any(map(redaction.hides, _DATASET_KEYS)):
        return {"executions": [], "iterations": [], "left_out": 0}
    longest = _longest(pipelines)
    found = datasets(longest, number)
    for each in _with_start(found):
        each["start"] = each.pop("start_unix_nano") - begin
    return found | {"left_out": len(pipelines.executions) - len(longest.executions)}


def rows_of_datasets(pipelines: Pipelines) -> list[int]:
    """The spans that it refers to, which the page always keeps."""
    longest = _longest(pipelines)
    return [
        *(row for one in longest.executions for row in (one.row, *(each.row for each in one.operators))),
        *(each.row for each in longest.iterations),
    ]


def _longest(pipelines: Pipelines) -> Pipelines:
    executions = sorted(pipelines.executions, key=lambda each: -each.duration)[:_MOST_DATASETS]
    iterations = sorted(pipelines.iterations, key=lambda each: each.start - each.end)[:_MOST_DATASETS]
    return Pipelines(sorted(executions, key=lambda each: each.start), sorted(iterations, key=lambda each: each.start))


def _with_start(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything in it that has a start."""
    yield from found["iterations"]
    for execution in found["executions"]:
        yield execution
        for operator in execution["operators"]:
            yield operator
            yield from operator["held_back_at"]


_MOST_ATTEMPTS = 20
_MOST_RANKS = 1000
_MOST_COLUMNS = 300
_MOST_CELLS = 50_000
_LONGEST_RUN = 200


def training(analysis: Analysis, number: NumberOf) -> dict[str, Any]:
    """The heat map of each attempt in which a rank took a step: how long each rank took and waited at each step.

    The latest attempts if there are many. Times are in microseconds.
    """
    found = [
        _attempt(analysis, run, attempt, number)
        for run in analysis.train_runs
        for attempt in run.attempts
        if any(rank.steps for rank in attempt.ranks)
    ]
    return {"training": found[-_MOST_ATTEMPTS:], "trainings": len(found)}


def _attempt(analysis: Analysis, run: TrainRun, attempt: Attempt, number: NumberOf) -> dict[str, Any]:
    ranks = attempt.ranks[:_MOST_RANKS]
    steps = max(step.number for rank in attempt.ranks for step in rank.steps)
    most = min(_MOST_COLUMNS, max(1, _MOST_CELLS // len(ranks)))
    size = -(-steps // most)
    columns = -(-steps // size)
    delays = [0] * columns
    last = [0] * len(ranks)
    position = {rank.rank: index for index, rank in enumerate(ranks)}
    for meeting in attempt.meetings:
        delays[(meeting.number - 1) // size] += meeting.delay // 1000
        if meeting.last in position:
            last[position[meeting.last]] += 1
    rows = []
    for rank, times in zip(ranks, last, strict=True):
        longest: list[Step | None] = [None] * columns
        waited = [0] * columns
        for step in rank.steps:
            column = (step.number - 1) // size
            held = longest[column]
            longest[column] = step if held is None or step.took > held.took else held
            waited[column] = max(waited[column], step.waited)
        rows.append(
            {
                "rank": rank.rank,
                "row": number(rank.row),
                "node": analysis.calls.place(rank.row).node[:8],
                "failed": analysis.table.failed(rank.row),
                "last": times,
                # 0 for a step that is not there.
                "took": [1 + step.took // 1000 if step else 0 for step in longest],
                "waited": [each // 1000 for each in waited],
                "rows": [number(step.row) if step else -1 for step in longest],
            }
        )
    return {
        "run": truncated(run.name, _LONGEST_RUN),
        "attempt": attempt.number,
        "row": number(attempt.row),
        "failed": analysis.table.failed(attempt.row),
        "steps": steps,
        "met": len(attempt.meetings),
        "size": size,
        "world": len(attempt.ranks),
        "delays": delays,
        "ranks": rows,
    }
