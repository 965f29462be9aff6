"""A comparison as plain values: the document of ``ray-tracing-hooks compare --json``.

Times are integers in nanoseconds (``_ns``, or ``_unix_nano`` since the epoch), shares are from 0 to 1. The names of
members do not change within one ``version``; members may be added. Texts quote names from spans, which may contain
anything. The members:

``engine``       ``duckdb`` if it read a run: then ``time_split`` and ``findings`` are from when that was stored; else
                 ``memory``.
``runs``, ``runs_before``  the runs of each side, as ``run`` in the document of ``summary --json``.
``method``       the test that a change has to pass.
``differences``  how the runs differ apart from the program, as texts: their times cannot be compared in full then.
``time_split``   the wall time by what it was spent on, on average: ``kind``, ``ns``, ``before_ns``, the largest first;
                 empty if a run has only requests to Ray Serve.
``findings``     of either side by ``kind`` and ``subject``: in how many ``runs`` and ``runs_before``, a text of each
                 side, the most that they cost on average over these, and the ``change``: ``came`` if all runs have it
                 and no earlier one, ``went`` the other way round, else ``stayed``.
``subjects``     functions and methods (``kind`` ``function``), methods of deployments (``deployment``) and spans of the
                 program (``span``), by ``name``, with averages of ``calls`` and self times of a run, whether each of
                 the runs has them and no earlier one (``is_new``) or the other way round (``is_gone``), and whether
                 their self times are ``is_comparable``: they wait for nothing, or their waits were recorded in all runs
                 alike.
                 ``changes`` by figure (``self time``, ``queued``, ``.remote()``, ``calls``, ``failed``, ``retried``,
                 ``critical path``) have the value ``now`` and ``before``, those of each run, the ``ratio`` or
                 ``difference``, from ``low`` to ``high`` how far it may be off (null if that is unknown), the corrected
                 ``probability`` of such a change by chance (null with one run on each side), and ``change``: ``more``
                 or ``less`` if it counts, else null. ``nodes`` has the same for the self times on each machine or node
                 that all runs have, if there are several. ``explained`` has, by figure, the attribute ``key`` and
                 ``value`` whose calls carry the change: the ``change`` of calls with it and ``elsewhere``, the
                 ``share`` of calls that have it, and its share of the slow or failed calls (``share_of_slow``). If all
                 calls have it now and none had it before, ``was`` is the value before, and nothing shows that it is the
                 cause. ``errors`` has the types of exceptions of what fails more.
"""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks._cli.engines import DUCKDB, MEMORY
from ray_tracing_hooks._cli.summary.document import run
from ray_tracing_hooks._insight.analysis.changes import METHOD, FigureChange
from ray_tracing_hooks._insight.analysis.comparison import Comparison, FindingChange, SubjectChange
from ray_tracing_hooks._insight.analysis.explained import Explanation

VERSION = 1


def document(found: Comparison) -> dict[str, Any]:
    """The document of a comparison."""
    return {
        "version": VERSION,
        "engine": DUCKDB if found.is_of_store else MEMORY,
        "runs": [run(each) for each in found.now],
        "runs_before": [run(each) for each in found.before],
        "method": METHOD,
        "differences": found.differences,
        "time_split": [{"kind": each.kind, "ns": each.now, "before_ns": each.before} for each in found.split],
        "findings": [_finding(each) for each in found.findings],
        "subjects": [_subject(each) for each in found.subjects],
    }


def _finding(found: FindingChange) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "subject": found.subject,
        "change": "came" if found.came else "went" if found.went else "stayed",
        "runs": found.runs,
        "runs_before": found.runs_before,
        "text": found.now.text if found.now else None,
        "text_before": found.before.text if found.before else None,
        "cost_ns": found.cost,
        "cost_before_ns": found.cost_before,
    }


def _subject(found: SubjectChange) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "name": found.name,
        "calls": found.calls,
        "calls_before": found.calls_before,
        "self_ns": round(found.self_time),
        "self_before_ns": round(found.self_time_before),
        "is_comparable": found.is_comparable,
        "is_new": found.is_new,
        "is_gone": found.is_gone,
        "changes": {each.what: _change(each) for each in found.changes if not each.where},
        "nodes": {each.where: _change(each) for each in found.changes if each.where},
        "explained": {what: _explanation(each) for what, each in found.explained.items()},
        "errors": found.errors,
    }


def _change(found: FigureChange) -> dict[str, Any]:
    return {
        "now": found.now,
        "before": found.before,
        "runs": found.runs,
        "runs_before": found.runs_before,
        "ratio" if found.is_ratio else "difference": found.amount,
        "low": found.low,
        "high": found.high,
        "probability": found.probability,
        "cost_ns": found.cost,
        "change": "more" if found.is_more else "less" if found.is_less else None,
    }


def _explanation(found: Explanation) -> dict[str, Any]:
    return {
        "key": found.key,
        "value": found.value,
        "was": found.was,
        "change": _change(found.change),
        "elsewhere": _change(found.elsewhere) if found.elsewhere else None,
        "share": found.share,
        "share_of_slow": found.share_of_slow,
    }
