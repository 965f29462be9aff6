"""The page of a comparison: the critical paths and the flame graphs of both sides, as means of their runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ray_tracing_hooks._insight.analysis import critical_path as paths
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.flame import flame
from ray_tracing_hooks._insight.analysis.lanes import ends_of
from ray_tracing_hooks._insight.analysis.wording import duration
from ray_tracing_hooks._insight.views.page.pack import LONGEST_NAME, truncated

_MOST_STACKS = 3_000
"""Stacks with less time on both sides are left out."""

_Stack = tuple[str, ...]


def compared(now: Sequence[Analysis], before: Sequence[Analysis], lines: Sequence[Any]) -> dict[str, Any]:
    """The comparison of runs with earlier ones for the page; ``lines`` has its sentences and tables."""
    sides = (before, now)
    stacks = [_stacks(runs) for runs in sides]
    most = Counter({stack: max(side[stack][0] for side in stacks) for stack in {*stacks[0], *stacks[1]}})
    kept = sorted(stack for stack, _ in most.most_common(_MOST_STACKS))
    number = {stack: place for place, stack in enumerate(kept)}
    return {
        "told": list(lines),
        "paths": [_path(runs) for runs in sides],
        "flame": {
            "label": [truncated(stack[-1], LONGEST_NAME) for stack in kept],
            "parent": [number.get(stack[:-1], -1) for stack in kept],
            "wait": [int(any(side[stack][1] for side in stacks)) for stack in kept],
            "own": [[round(side[stack][2]) for stack in kept] for side in stacks],
        },
        "sides": [_side(runs, when) for runs, when in zip(sides, ("Before", "Now"), strict=True)],
    }


def _side(runs: Sequence[Analysis], when: str) -> str:
    mean = duration(sum(each.path.wall for each in runs) / len(runs))
    return f"{when}: {mean}" if len(runs) == 1 else f"{when}: {mean}, the mean of {len(runs)} runs"


def _path(runs: Sequence[Analysis]) -> list[dict[str, Any]]:
    """The parts of the critical path, the largest first; empty if a run has only requests to Ray Serve."""
    if any(each.ends_with_request for each in runs):
        return []
    found: Counter[tuple[str, str]] = Counter()
    for each in runs:
        found.update({(name, paths.RUN): time for name, time in each.path.functions.items()})
        found.update(
            {
                (paths.SHORT_MEANINGS[kind], kind): each.path.kinds[kind]
                for kind in paths.KINDS
                if kind not in (paths.RUN, paths.SUBMIT)
            }
        )
    return [
        {"label": truncated(label, LONGEST_NAME), "kind": kind, "ns": round(time / len(runs))}
        for (label, kind), time in found.most_common()
        if time > 0
    ]


class _Stacks(dict[_Stack, tuple[float, bool, float]]):
    """By stack: its share of the wall time with all stacks below it, whether it waits, and its own share."""

    def __missing__(self, key: _Stack) -> tuple[float, bool, float]:
        return 0.0, False, 0.0


def _stacks(runs: Sequence[Analysis]) -> _Stacks:
    found = _Stacks()
    for each in runs:
        graph = flame(each.table, ends_of(each.table), each.is_failed)
        stacks: list[_Stack] = []
        for label, parent in zip(graph.label, graph.parent, strict=True):
            stacks.append((*(stacks[parent] if parent >= 0 else ()), label))
        whole = list(graph.share)
        for place in range(len(whole) - 1, -1, -1):
            if graph.parent[place] >= 0:
                whole[graph.parent[place]] += whole[place]
        for stack, total, waits, own in zip(stacks, whole, graph.is_wait, graph.share, strict=True):
            before = found[stack]
            found[stack] = before[0] + total / len(runs), before[1] or waits, before[2] + own / len(runs)
    return found
