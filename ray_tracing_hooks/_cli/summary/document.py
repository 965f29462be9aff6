"""The summary of a run as plain values: the document of ``ray-tracing-hooks summary --json``.

Times are integers in nanoseconds (``_ns``, or ``_unix_nano`` since the epoch), shares are from 0 to 1, ids are hex.
The names of members do not change within one ``version``; members may be added. Texts quote names from spans, which
may contain anything. The members:

``run``            ``name`` of the driver, ``session``, ``job``, ``start_unix_nano``, ``wall_ns``, ``spans``, ``calls``,
                   ``state`` (``ended``, ``running``, or ``unknown`` if no span of the driver was read), and
                   the number of ``runs`` in the spans that were read.
``quality``        what is wrong with the data: counts, ``problems`` as text, ``clocks`` (nanoseconds that were added to
                   the times of a machine). Counts cover all spans that were read.
``mode``           ``exact`` if all that the critical path may have waited for was recorded, ``inferred`` if that is
                   partly assumed. ``coverage`` says how much is explained.
``time_split``     the wall time by what it was spent on: ``kind``, ``ns``, ``share``. Adds up to ``wall_ns``.
``critical_path``  ``functions`` with the time that their code ran on it, the most that the run could save;
                   ``kinds`` as in ``time_split``; ``coverage``; ``is_exact``, ``is_estimated``;
                   ``steps`` on request.
``functions``      by self time: ``calls``, ``executions``, ``failed``, ``self_ns``, ``on_path_ns``, and percentiles of
                   ``self``, ``duration``, ``queued`` and ``submitting``. ``is_assumed`` if waiting was not recorded and
                   the time in which calls that it made ran is taken to be waiting: its self time may be longer.
``actors``         by self time: how busy each was, and how long calls waited for it.
``queues``         what calls waited for before they ran, if files with task states are next to the spans: the number of
                   ``calls`` with states, events that Ray ``dropped``, and ``functions`` with their time by phase:
                   ``arguments_ns``, ``scheduling_ns``, ``fetching_ns``, ``actor_queue_ns``, ``loading_ns``; null
                   without such files.
``requests``       to Ray Serve, null if there are none: ``count``, ``failed``, ``running``, calls by handles whose end
                   is ``unrecorded``, ``time_ns`` of them all; ``routes`` with their ``application``, whether a handle
                   called (``is_handle``), ``count``, ``failed`` and percentiles of ``duration``; ``time``, what it went
                   to: ``kind`` (``proxy``, ``replica wait``, ``delivery``, ``unrecorded``, ``event loop``, ``span``,
                   ``code``, ``calls``; of LLM engines ``before engine``, ``engine front end``, ``engine queue``,
                   ``engine prefill``, ``engine decode``, ``engine``, ``after engine``), ``name``, ``application``, the
                   ``span`` of that kind, ``ns``, ``share``, and the share of the time of the slowest 5 %
                   (``slow_share``, null for few requests); ``methods`` of deployments with ``executions``, ``failed``,
                   ``replicas``, ``batches``, and percentiles of how long their calls ``waited``, of their ``duration``
                   and of that of a ``batch``. A ``label`` or ``about`` is what the text calls it, and ``slowest`` and
                   ``longest`` are the ids of spans.
``generations``    of LLM engines, null if there are none: ``models`` with ``count``, ``failed``, ``aborted``, tokens
                   (``input_tokens``, ``output_tokens``, ``cached_tokens``), percentiles of
                   ``time_to_first_token``, ``time_per_output_token`` and ``queue``, whether it is only the prefill for
                   another engine (``is_prefill``), and the same for each of its ``replicas``; ``first_chunks`` of
                   streamed requests to Ray Serve by ``deployment``, ``application`` and ``model``: ``count``,
                   percentiles of ``duration``, and ``time``, what it went to, in the order of ``kind``; how many
                   generations are ``unread``: they have no figures. ``operators`` of datasets have the sums of
                   all their generations, also of those without a span; their times are exact to about 5 %
``datasets``       of Ray Data: ``executions`` with ``outcome``, ``rows``, ``bytes``, what it is ``limited_by``, and its
                   ``operators`` with their totals, ``timeline``, and what they were ``held_back`` by; ``iterations``
                   with what the program waited for. A ``span`` is the id of its span.
``accelerators``   by ``node`` and ``accelerator``: ``held_ns``, ``busy_ns``, ``longest_gap_ns``, ``holders``,
                   ``executions``.
``parallelism``    calls that ran at the same time: ``average``, ``peak``, ``buckets`` over the wall time; ``waiting``:
                   how many waited in ``ray.get`` and similar calls, on average; ``workers``, ``nodes``.
``findings``       ``kind``, ``title``, ``text``, ``advice``, ``share`` and ``cost_ns`` (the time on the critical path
                   that it costs, which is the most that the run could save), ``requests_share`` (of the time of
                   requests to Ray Serve; 0 if it is not about these), ``about`` (names, by ``function``, ``actor`` and
                   so on), ``is_assumed``, ``evidence`` (ids of spans).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import KINDS, Path
from ray_tracing_hooks._insight.analysis.findings import Finding, find
from ray_tracing_hooks._insight.analysis.measured import AnalyzedRun, MeasuredRun
from ray_tracing_hooks._insight.analysis.queues import PHASES
from ray_tracing_hooks._insight.views.datasets import datasets
from ray_tracing_hooks._insight.views.requests import generations, percentiles, requests

VERSION = 1


def document(
    analysis: Analysis, findings: Sequence[Finding] | None = None, *, runs: int = 1, steps: bool = False
) -> dict[str, Any]:
    """The document of a run. ``runs`` is the number of runs that were found."""
    span = analysis.table.span_id_of
    return {
        "version": VERSION,
        "run": run(AnalyzedRun(analysis), runs),
        "quality": quality(analysis),
        "mode": "exact" if analysis.path.is_exact and analysis.split.is_exact else "inferred",
        "time_split": kinds(analysis.split),
        "critical_path": _path(analysis, steps=steps),
        "functions": list(functions(analysis)),
        "actors": list(_actors(analysis)),
        "queues": _queues(analysis),
        "requests": requests(analysis.requests, span),
        "generations": generations(analysis.engines, analysis.generating_operators, span),
        "datasets": datasets(analysis.pipelines, span),
        "accelerators": list(_accelerators(analysis)),
        "parallelism": {
            "average": analysis.parallelism.average,
            "peak": analysis.parallelism.peak,
            "waiting": analysis.parallelism.waiting,
            "buckets": analysis.parallelism.buckets,
            "workers": analysis.parallelism.workers,
            "nodes": analysis.parallelism.nodes,
        },
        "findings": [_finding(analysis, each) for each in (find(analysis) if findings is None else findings)],
    }


def run(found: MeasuredRun, runs: int = 1) -> dict[str, Any]:
    return {
        "name": found.name,
        "session": found.session,
        "job": found.job,
        "start_unix_nano": found.start,
        "wall_ns": found.wall,
        "spans": found.spans,
        "calls": found.calls,
        "state": found.state,
        "runs": runs,
    }


def quality(analysis: Analysis) -> dict[str, Any]:
    found = analysis.table.quality
    counts = (
        *("files", "lines", "spans", "bad_lines", "bad_spans", "incomplete_files", "duplicates", "dropped"),
        *("truncated", "lost", "unended", "running", "orphans", "continuing", "of_open_drivers", "circles", "negative"),
    )
    return {name: getattr(found, name) for name in counts} | {
        "unexecuted": analysis.unexecuted,
        "left_out": analysis.calls.left_out,
        "unsampled": analysis.calls.unsampled,
        "clocks": found.clocks,
        "clamped_ns": analysis.path.clamped,
        "problems": [str(problem) for problem in found.problems],
    }


def kinds(path: Path) -> list[dict[str, Any]]:
    """The time of a path by kind, the largest first."""
    return [
        {"kind": kind, "ns": path.kinds[kind], "share": path.kinds[kind] / path.wall if path.wall else 0.0}
        for kind in sorted(KINDS, key=lambda kind: -path.kinds[kind])
    ]


def _path(analysis: Analysis, *, steps: bool) -> dict[str, Any]:
    path = analysis.path
    found: dict[str, Any] = {
        "functions": [
            {"function": name, "ns": time, "share": time / path.wall}
            for name, time in path.functions.most_common()
            if time
        ],
        "kinds": kinds(path),
        "coverage": path.coverage,
        "is_exact": path.is_exact,
        "is_estimated": path.is_estimated,
    }
    if steps:
        found["steps"] = list(_steps(analysis))
    return found


def _steps(analysis: Analysis) -> Iterator[dict[str, Any]]:
    table, calls = analysis.table, analysis.calls

    def span_id(row: int) -> str | None:
        return table.span_id_of(row) if 0 <= row < len(table) else None

    for step in analysis.path.steps:
        yield {
            "kind": step.kind,
            "start_unix_nano": step.start,
            "ns": step.end - step.start,
            "name": calls.frame_name(step.row) if step.row >= 0 else None,
            "span_id": span_id(step.row),
            "edge": step.edge,
            "source_span_id": span_id(step.source),
            "is_assumed": step.is_assumed,
        }


def functions(analysis: Analysis) -> Iterator[dict[str, Any]]:
    for each in analysis.functions:
        yield {
            "function": each.name,
            "calls": each.calls,
            "executions": len(each.executions),
            "failed": each.failed,
            "self_ns": each.self_time,
            "on_path_ns": each.on_path,
            "is_assumed": each.is_assumed,
            "self": percentiles(each.self_times),
            "duration": percentiles(each.durations),
            "queued": percentiles(each.queued),
            "submitting": percentiles(each.submitting),
        }


def _actors(analysis: Analysis) -> Iterator[dict[str, Any]]:
    for each in analysis.actors:
        yield {
            "actor": each.name,
            "actor_id": each.actor_id,
            "class": each.actor_class,
            "calls": len(each.executions),
            "callers": each.callers,
            "slots": each.slots,
            "self_ns": each.self_time,
            "busy_share": each.busy_share,
            "mean_queue": each.mean_depth,
            "deepest_queue": each.deepest,
            "queued": percentiles(each.queued),
            "on_path_ns": each.on_path,
        }


def _queues(analysis: Analysis) -> dict[str, Any] | None:
    if not analysis.states.files:
        return None
    return {
        "calls": sum(each.calls for each in analysis.queues),
        "dropped": analysis.states.dropped,
        "functions": [
            {
                "function": each.name,
                "calls": each.calls,
                "total_ns": each.total,
                **{f"{phase.replace(' ', '_')}_ns": each.times[phase] for phase in PHASES},
            }
            for each in analysis.queues
        ],
    }


def _accelerators(analysis: Analysis) -> Iterator[dict[str, Any]]:
    for each in analysis.accelerators:
        yield {
            "node": each.node,
            "accelerator": each.name,
            "holders": each.holders,
            "executions": len(each.executions),
            "held_ns": each.held,
            "busy_ns": each.busy,
            "longest_gap_ns": each.longest_gap,
            "used": each.used,
        }


def _finding(analysis: Analysis, finding: Finding) -> dict[str, Any]:
    table = analysis.table
    return {
        "kind": finding.kind,
        "title": finding.title,
        "text": finding.text,
        "advice": finding.advice,
        "share": finding.share,
        "cost_ns": round(finding.share * analysis.path.wall),
        "requests_share": finding.requests_share,
        "about": finding.about,
        "is_assumed": finding.is_assumed,
        "evidence": [{"trace_id": table.trace_id_of(row), "span_id": table.span_id_of(row)} for row in finding.rows],
    }
