"""Which attribute explains a change: the value whose calls changed while all others did not, or hardly.

Attributes are those of spans and of their Resources, and each argument of a call if arguments were recorded. What names
a single process, task or job explains nothing about the next run, so it is left out.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.changes import (
    LEAST_CALLS,
    Figure,
    FigureChange,
    Question,
    changes,
    share_of,
    time_of,
)
from ray_tracing_hooks._insight.analysis.measured import Work

_MOST_ROWS = 400
"""How many executions of a function are looked at in each run, evenly over time."""
_MOST_VALUES = 20
_LONGEST_VALUE = 200

_ELSEWHERE = 1 / 3
"""All other calls may have changed by at most this part of the change that a value explains."""

_LAST = 1e3
"""Subtracted from the rank of values that all calls have: those of some calls say more."""

_SLOW = 0.9
"""Calls are slow that take longer than this share of the calls before."""

_FIRST = ("host.name", names.RESOURCE_NODE_ID, names.RAY_ACCELERATOR_IDS)
"""Of keys that divide the calls alike, the first of these is named, then others by name."""

_IDS = frozenset(
    {
        *(names.RAY_TASK_ID, names.RAY_PARENT_TASK_ID, names.RAY_SUBMIT_TIME, names.RAY_JOB_ID, names.RAY_PID),
        *(names.RAY_NODE_ID, names.RAY_WORKER_ID, names.RAY_ACTOR_ID, names.RAY_SUBMISSION_ID),
        *(names.RAY_ARGUMENT_IDS, names.RAY_OBJECT_IDS, names.RAY_READY_OBJECT_IDS, names.RAY_PLACEMENT_GROUP_ID),
        *(names.RAY_RESULT, names.ERROR_TYPE, names.RAY_END_ESTIMATED, names.THREAD_ID, names.THREAD_NAME),
        *(names.RESOURCE_WORKER_ID, names.RESOURCE_WORKER_READY, names.RESOURCE_SESSION_NAME),
        *(names.RESOURCE_GCS_ADDRESS, names.RESOURCE_PROCESS_TYPE, "service.instance.id", "host.ip", "host.id"),
        *(names.RAY_FUNCTION, names.RAY_REMOTE, names.RAY_ACTOR_CLASS, names.RAY_ACTOR_METHOD, names.RAY_ARGUMENTS),
        *(names.RAY_FUNCTION_SIZE, names.RAY_LIBRARIES),
    }
)
"""Attributes of a single process or call, results of a call, and those that all calls of a function share."""

_ID_PREFIXES = ("process.", "telemetry.", "exception.")
_ARGUMENT = "argument "


@dataclass(frozen=True)
class Explanation:
    """The value of an attribute whose calls carry a change."""

    key: str
    value: str
    was: str | None
    """If every call has the value now, and none had it before: the value that most had. Then the change goes with the
    attribute, and nothing shows that one causes the other. Otherwise None."""
    change: FigureChange
    """Of the calls with the value. If no call had it before, they are compared with all calls before."""
    elsewhere: FigureChange | None
    """Of all other calls; None if there are none."""
    share: float
    """The share of the calls that have the value, now."""
    share_of_slow: float | None
    """The share that they are of the slow or failed calls now; None if there are none of these."""


class _Executions:
    """Some executions of a function in a run, with their attributes."""

    def __init__(self, work: Work) -> None:
        self.own, self.failed, spans = work.sample(_MOST_ROWS)
        self.values: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(lambda: np.zeros(len(self.own), bool)))
        """By key and value, the executions that have it."""
        for place, resource, attributes in spans:
            for key, value in _attributes(resource, attributes):
                self.values[key][value][place] = True


def _attributes(resource: Mapping[str, Any], attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in (*resource.items(), *attributes.items()):
        if key not in _IDS and not key.startswith(_ID_PREFIXES):
            yield key, str(value)[:_LONGEST_VALUE]
    yield names.RESOURCE_NODE_ID, str(attributes.get(names.RAY_NODE_ID) or "")
    for name, value in arguments(str(attributes.get(names.RAY_ARGUMENTS) or "")):
        yield f"{_ARGUMENT}{name}", value[:_LONGEST_VALUE]


def arguments(text: str) -> Iterator[tuple[str, str]]:
    """Each argument of the text of a call, such as ``path='a, b', sizes=[1, 2]``, with its name or number."""
    begin = level = number = 0
    quote, is_escaped = "", False
    for place, sign in enumerate(f"{text},"):
        if quote:
            quote = "" if sign == quote and not is_escaped else quote
            is_escaped = sign == "\\" and not is_escaped
        elif sign in "'\"":
            quote = sign
        elif sign in "([{":
            level += 1
        elif sign in ")]}":
            level -= 1
        elif sign == "," and level <= 0:
            part, begin = text[begin:place].strip(), place + 1
            name, is_named, value = part.partition("=")
            if part and is_named and name.isidentifier():
                yield name, value
            elif part:
                yield str(number), part
            number += 1


def explanation(now: Sequence[Work], before: Sequence[Work], least: float, *, of_errors: bool) -> Explanation | None:
    """What explains that the self times of a function are longer, or that more of its calls fail; None if nothing does.

    ``least`` is the relative change, or with ``of_errors`` the difference of shares, from which on a change matters.
    """
    runs, runs_before = (list(map(_Executions, side)) for side in (now, before))

    def figure(run: _Executions, chosen: Any) -> Figure | None:
        if chosen.sum() < LEAST_CALLS:
            return None
        return share_of(int(run.failed[chosen].sum()), int(chosen.sum())) if of_errors else time_of(run.own[chosen])

    found = list(_candidates(runs, runs_before))
    asked = [
        question
        for key, value in found
        for question in _questions(runs, runs_before, key, value, figure, least, is_ratio=not of_errors)
    ]
    answers = changes(asked)
    best: tuple[float, Explanation] | None = None
    for number, (key, value) in enumerate(found):
        change, elsewhere, apart = answers[3 * number : 3 * number + 3]
        if change is None or not change.is_more:
            continue
        was, rank = None, _size(change) - _size(elsewhere)
        is_new = not any(_has(run, key, value).any() for run in runs_before)
        if all(_has(run, key, value).all() for run in runs):
            was = _most_common(runs_before, key) if is_new else None
            if was is None:
                continue
            rank -= _LAST
        elif (
            elsewhere is None
            or _size(elsewhere) > _ELSEWHERE * _size(change)
            or (not is_new and not (apart is not None and apart.is_more))
        ):
            continue
        if best is None or rank > best[0]:
            shares = _shares(runs, runs_before, key, value, of_errors=of_errors)
            best = rank, Explanation(key, value, was, change, elsewhere, *shares)
    return best[1] if best else None


def _has(run: _Executions, key: str, value: str) -> Any:
    return run.values[key][value] if key in run.values and value in run.values[key] else np.zeros(len(run.own), bool)


def _candidates(runs: Sequence[_Executions], runs_before: Sequence[_Executions]) -> Iterator[tuple[str, str]]:
    """Values that enough calls of each run have now, without those that divide the calls as another one does."""
    known = set()
    keys = {key for run in runs for key in run.values}
    for key in sorted(keys, key=lambda key: (_FIRST.index(key) if key in _FIRST else len(_FIRST), key)):
        many = Counter({value: int(has.sum()) for value, has in runs[0].values.get(key, {}).items()})
        for value, _ in many.most_common(_MOST_VALUES):
            has = [_has(run, key, value) for run in runs]
            if not value or min(int(each.sum()) for each in has) < LEAST_CALLS:
                continue
            division = tuple(each.tobytes() for each in (*has, *(_has(run, key, value) for run in runs_before)))
            if division not in known:
                known.add(division)
                yield key, value


def _questions(
    runs: Sequence[_Executions],
    runs_before: Sequence[_Executions],
    key: str,
    value: str,
    figure: Callable[[_Executions, Any], Figure | None],
    least: float,
    *,
    is_ratio: bool,
) -> Iterator[Question]:
    """How the calls with a value changed, how all others did, and how the two differ from each other."""
    has, has_before = ([_has(run, key, value) for run in side] for side in (runs, runs_before))
    with_value, others = (
        [figure(run, each == wanted) for run, each in zip(runs, has, strict=True)] for wanted in (1, 0)
    )
    # If no call had it before, both are compared with all calls before.
    is_new = not any(each.any() for each in has_before)
    with_before, others_before = (
        [figure(run, each == (wanted and not is_new)) for run, each in zip(runs_before, has_before, strict=True)]
        for wanted in (1, 0)
    )
    yield Question("with", (with_value, with_before), is_ratio, least)
    yield Question("without", (others, others_before), is_ratio, least)
    yield Question("apart", (_apart(with_value, others), _apart(with_before, others_before)), is_ratio, least)


def _apart(with_value: Sequence[Figure | None], others: Sequence[Figure | None]) -> list[Figure | None]:
    return [
        Figure(
            one.value - other.value,
            math.hypot(one.error, other.error),
            tuple(a - b for a, b in zip(one.parts, other.parts, strict=False)),
        )
        if one and other
        else None
        for one, other in zip(with_value, others, strict=True)
    ]


def _size(change: FigureChange | None) -> float:
    """How much more it is: the logarithm of a ratio, or a difference; 0 if it is not more."""
    if change is None:
        return 0.0
    return max(0.0, math.log(change.amount) if change.is_ratio and change.amount > 0 else change.amount)


def _most_common(runs: Sequence[_Executions], key: str) -> str | None:
    many: Counter[str] = Counter()
    for run in runs:
        many.update({value: int(has.sum()) for value, has in run.values.get(key, {}).items()})
    return many.most_common(1)[0][0] if many else None


def _shares(
    runs: Sequence[_Executions], runs_before: Sequence[_Executions], key: str, value: str, *, of_errors: bool
) -> tuple[float, float | None]:
    """The shares that a value has of the calls, and of the slow or failed ones."""
    has = np.concatenate([_has(run, key, value) for run in runs])
    if of_errors:
        slow = np.concatenate([run.failed for run in runs])
    else:
        usual = float(np.quantile(np.concatenate([run.own for run in runs_before]), _SLOW))
        slow = np.concatenate([run.own for run in runs]) > usual
    return float(has.mean()), float(has[slow].mean()) if slow.any() else None
