"""The text of a summary: where the time of a run went, on one screen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ray_tracing_hooks._cli.inputs import linked
from ray_tracing_hooks._cli.screen import WIDEST, Row, TextTable, aligned
from ray_tracing_hooks._cli.summary import datasets, generations, requests
from ray_tracing_hooks._cli.summary.document import functions, kinds
from ray_tracing_hooks._insight.analysis import recorded
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import (
    MEANINGS,
    RUN,
    SUBMIT,
)
from ray_tracing_hooks._insight.analysis.findings import Finding
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.queues import PHASES
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent, plain, shortened
from ray_tracing_hooks._insight.model.table import RUNNING

_SHOWN_FUNCTIONS = 8
_SHOWN_ACTORS = 3
_SHOWN_ACCELERATORS = 8
_SHOWN_FINDINGS = 10
_SHOWN_EVIDENCE = 5
_BRIEF = 3
_SHOWN_PATH = 10
_NAME_WIDTH = 40
_PART_WIDTH = 60
_BAR = 16

_BAD = ("bad_lines", "bad_spans", "incomplete_files", "dropped", "lost", "lost_parents", "circles", "clocks")
"""Problems of the data that the reader should know before the rest."""


def lines(
    analysis: Analysis, findings: Sequence[Finding], number: int, *, verbose: bool, trace_url: str = ""
) -> Iterator[str | Row]:
    """The newest of ``number`` runs. ``verbose``: with span ids, the split with queues and the steps of the path.

    ``trace_url``: where a back end shows a trace, for a link from each finding.
    """
    yield from _heading(analysis, number)
    is_bad = _is_bad(analysis)
    if is_bad:
        yield _quality(analysis)
    yield from _findings(analysis, findings, verbose=verbose, trace_url=trace_url)
    yield from requests.lines(analysis.requests)
    yield from generations.lines(analysis.engines)
    yield from generations.of_operators(analysis.generating_operators)
    if not analysis.ends_with_request:
        yield from _where(analysis)
        if verbose:
            yield from _split(analysis)
            yield from _steps(analysis)
    yield from datasets.lines(analysis.pipelines)
    for part in function_table([*functions(analysis)], recorded.own_time(analysis)):
        yield from part.lines() if isinstance(part, TextTable) else (part,)
    if not analysis.calls.unsampled:  # what else ran is not known then
        yield from _actors(analysis)
        yield from _queues(analysis)
        yield from _accelerators(analysis)
        yield from _parallelism(analysis)
    if not is_bad:
        yield ""
        yield _quality(analysis)


def _is_bad(analysis: Analysis) -> bool:
    return bool(analysis.calls.unsampled) or any(getattr(analysis.table.quality, name) for name in _BAD)


def brief(analysis: Analysis, findings: Sequence[Finding], number: int) -> Iterator[str | Row]:
    """What matters most of it, on some fifteen lines."""
    yield from _heading(analysis, number)
    if _is_bad(analysis):
        yield shortened(_quality(analysis), 2 * WIDEST)
    yield from _findings(analysis, findings, verbose=False, described=1, shown=_BRIEF)
    yield ""
    found = analysis.requests
    if found is not None and found.parts:
        of_requests = [(found.described(part), part.time) for part in found.parts[:_BRIEF]]
        yield _went(of_requests, found.time, f" of {count(found.count, 'request')}")
    if not analysis.ends_with_request and analysis.path.coverage:
        of_run = [(_first_words(what), time) for what, time in _parts(analysis)[:_BRIEF]]
        certainty = recorded.certainty(analysis.calls, analysis.path)
        yield f"{_went(of_run, analysis.path.wall, _whose(analysis))} {certainty}"


def _went(parts: Sequence[tuple[str, int]], total: int, whose: str) -> str:
    most = [f"{percent(time / total)} {shortened(what, _PART_WIDTH)}" for what, time in parts]
    return f"Where the {duration(total)}{whose} went: {', '.join(most)}."


def _heading(analysis: Analysis, number: int) -> Iterator[str]:
    path, table = analysis.path, analysis.table
    start = datetime.fromtimestamp(path.start / 1e9).astimezone()
    went = "has run for" if RUNNING in table.state else "took at least" if path.is_cut else "took"
    what = f"{_name(analysis.name)} {went}"
    if not analysis.ends_with_driver and path.is_cut:
        what = f"a run with {what}"
    is_of_requests = analysis.serves and (analysis.ends_with_driver or analysis.ends_with_request)
    if analysis.requests is not None and is_of_requests and analysis.requests.count > 1:
        what = f"{count(analysis.requests.count, 'request')} to Ray Serve within"
    more = f"   {start:%Y-%m-%d %H:%M:%S}   {', '.join([*_contents(analysis), count(len(table), 'span')])}"
    yield f"{what} {duration(path.wall)}{more}"
    if number > 1:
        yield (
            f"This is the newest of {count(number, 'run')}; PATH@latest~1 is the one before it "
            "(ray-tracing-hooks runs lists them)."
        )


def _contents(analysis: Analysis) -> Iterator[str]:
    seen, found = analysis.parallelism, analysis.requests
    if found is not None:
        yield count(found.count + found.running + found.unrecorded, "request")
    if len(analysis.calls) or found is None:
        yield f"{count(len(analysis.calls), 'call')} of {count(len(analysis.functions), 'function')}"
        yield f"{count(seen.workers, 'worker')} on {count(seen.nodes, 'node')}"


def _quality(analysis: Analysis) -> str:
    found = analysis.table.quality
    read = [f"{count(found.spans, 'span')} in {count(found.files, 'file')}", *recorded.of_all(found)]
    run = recorded.of_run(analysis)
    if len(analysis.table) == found.spans:
        return f"Data: {'; '.join([*read, *run])}."
    return f"Data of all runs that were read: {'; '.join(read)}. Of this run: {'; '.join(run)}."


def _findings(
    analysis: Analysis,
    findings: Sequence[Finding],
    *,
    verbose: bool,
    described: int = _SHOWN_FINDINGS,
    shown: int = _SHOWN_FINDINGS,
    trace_url: str = "",
) -> Iterator[str]:
    """The first ``shown``; those beyond the first ``described`` without evidence and advice."""
    yield ""
    table = analysis.table
    if findings:
        yield "Findings"
    else:
        failed = int(analysis.is_failed.sum())
        seen = f"; {count(failed, 'span')} failed" if failed else ""
        yield f"Findings: none{recorded.gaps(analysis)}{seen}"
    for place, finding in enumerate(findings[:shown], 1):
        cost = finding.cost(analysis.path.wall)
        yield f" {place}. {finding.headline}{f': {cost}' if cost else ''}"
        if place > described:
            continue
        yield f"    {finding.text}"
        if finding.advice:
            yield f"    -> {finding.advice}"
        if trace_url and finding.rows:
            yield f"    {linked(trace_url, table.trace_id_of(finding.rows[0]), table.span_id_of(finding.rows[0]))}"
        if verbose:
            rows = finding.rows[:_SHOWN_EVIDENCE]
            more = f" and {count(len(finding.rows) - len(rows), 'other')}" if len(finding.rows) > len(rows) else ""
            yield f"    {finding.kind}: spans {', '.join(map(table.span_id_of, rows))}{more}"
    if len(findings) > shown:
        where = ": --json has them" if shown == _SHOWN_FINDINGS else ""
        yield f"    and {count(len(findings) - shown, 'other finding')}{where}"


def _where(analysis: Analysis) -> Iterator[str]:
    """The time along the critical path: what each finding costs is a part of this."""
    path = analysis.path
    yield ""
    yield f"Where the {duration(path.wall)}{_whose(analysis)} went, along the critical path"
    parts = _parts(analysis)
    for what, time in parts[:_SHOWN_PATH]:
        bar = "#" * round(min(1.0, time / path.wall) * _BAR)
        yield f" {percent(time / path.wall):>6} {duration(time):>8}  {bar:<{_BAR}} {what}"
    if more := parts[_SHOWN_PATH:]:
        took = sum(time for _, time in more)
        yield f" {percent(took / path.wall):>6} {duration(took):>8}  {'':<{_BAR}} {count(len(more), 'other function')}"
    if path.coverage:
        yield recorded.bound(analysis.calls, path)


def _whose(analysis: Analysis) -> str:
    """Whose time it is, in a run that is mostly about requests, of which other lines tell."""
    return f" of {_name(analysis.name)}" if analysis.serves else ""


def _first_words(what: str) -> str:
    """What a time was spent on, without the details in a kind's meaning."""
    return what if not what.startswith("(") else what[1:-1].partition(":")[0]


def _parts(analysis: Analysis) -> list[tuple[str, int]]:
    """The time on the critical path by function and by other kinds, the longest first. They add up to the run."""
    path = analysis.path
    parts = [(_name(name), time) for name, time in path.functions.items()]
    parts += [(f"({MEANINGS[kind]})", time) for kind, time in path.kinds.items() if kind not in (RUN, SUBMIT)]
    return sorted(((what, time) for what, time in parts if time > 0), key=lambda part: -part[1])


def _split(analysis: Analysis) -> Iterator[str]:
    split = analysis.split
    yield ""
    yield (
        "The same time with queues: a wait for a busy actor or worker counts as that wait here, while the critical "
        "path and the findings count what kept it busy"
    )
    for each in kinds(split):
        if each["ns"]:
            yield f" {percent(each['share']):>6} {duration(each['ns']):>8}  {MEANINGS[each['kind']]}"


def _steps(analysis: Analysis) -> Iterator[str]:
    table, calls, path = analysis.table, analysis.calls, analysis.path
    yield ""
    yield "The steps of the critical path"
    yield "   AT        TOOK      WHAT"
    for step in path.steps:
        name = _name(calls.frame_name(step.row)) if step.row >= 0 else ""
        because = f"after {step.edge}" if step.edge not in ("code", "nothing") else ""
        shown = f"  {table.span_id_of(step.source)}" if because and 0 <= step.source < len(table) else ""
        assumed = " (assumed)" if step.is_assumed else ""
        at, took = duration(step.start - path.start), duration(step.end - step.start)
        yield f"   {at:<9} {took:<9} {step.kind:<12} {name}  {because}{shown}{assumed}".rstrip()


def function_table(every: Sequence[Mapping[str, Any]], own: str = "") -> Iterator[str | TextTable]:
    """The first of these functions, which are as in the document. ``own``: what to add to what self time is."""
    rows = [
        (
            _name(each["function"]),
            f"{each['calls']:,}",
            duration(each["self_ns"]),
            *(duration(each["self"][f"{name}_ns"]) if each["self"] else "" for name in ("median", "p95", "max")),
            duration(each["queued"]["median_ns"]) if each["queued"] else "",
            f"{each['failed']:,}" if each["failed"] else "",
        )
        for each in every[:_SHOWN_FUNCTIONS]
    ]
    if not rows:
        return
    yield ""
    yield f"Functions by self time: their own code, without waiting in ray.get{own}"
    yield TextTable(("FUNCTION", "CALLS", "SELF TIME", "MEDIAN", "P95", "MAX", "QUEUED", "FAILED"), rows)
    if more := len(every) - len(rows):
        yield f" and {count(more, 'other function')}"


def _actors(analysis: Analysis) -> Iterator[str | Row]:
    rows = [
        (
            _name(each.name),
            f"{len(each.executions):,}",
            duration(each.self_time),
            percent(each.busy_share),
            duration(percentile(each.queued, 0.5)) if each.queued else "",
            f"{each.deepest:,}",
        )
        for each in analysis.actors[:_SHOWN_ACTORS]
    ]
    if not rows:
        return
    yield ""
    yield "Actors by self time: how busy each was while it was in use, and the calls that waited for it"
    yield from aligned(("ACTOR", "CALLS", "SELF TIME", "BUSY", "QUEUED", "LONGEST QUEUE"), rows)
    if more := len(analysis.actors) - len(rows):
        yield f" and {count(more, 'other actor')}"


def _queues(analysis: Analysis) -> Iterator[str | Row]:
    found = analysis.queues
    rows = [
        (
            _name(each.name),
            f"{each.calls:,}",
            duration(each.total),
            *(duration(each.times[phase]) if each.times[phase] else "" for phase in PHASES),
        )
        for each in found[:_SHOWN_FUNCTIONS]
    ]
    if not rows:
        return
    known = sum(each.calls for each in found)
    yield ""
    yield (
        f"Queues: total time that calls waited before they ran, by cause ({known:,} of "
        f"{count(len(analysis.calls), 'call')}, from Ray's task states)"
    )
    yield from aligned(("FUNCTION", "CALLS", "QUEUED", *(phase.upper() for phase in PHASES)), rows)
    if more := len(found) - len(rows):
        yield f" and {count(more, 'other function')}"
    if dropped := analysis.states.dropped:
        yield f" Ray has dropped {count(dropped, 'event')} of tasks."


def _accelerators(analysis: Analysis) -> Iterator[str | Row]:
    idle_first = sorted(analysis.accelerators, key=lambda each: each.busy - each.held)
    is_sampled = any(each.used is not None for each in idle_first)
    rows = [
        (
            f"{shortened(each.name, _NAME_WIDTH)} of node {each.node[:8]}",
            duration(each.held),
            duration(each.busy),
            percent(each.busy_share),
            *(["" if each.used is None else percent(each.used)] if is_sampled else []),
            duration(each.longest_gap),
            _name(each.holders[0]) + (f" and {len(each.holders) - 1:,}" if len(each.holders) > 1 else ""),
        )
        for each in idle_first[:_SHOWN_ACCELERATORS]
    ]
    if not rows:
        return
    yield ""
    yield "Accelerators, the most idle first: how long each was held, and how long its holders ran"
    used = ["IN USE"] if is_sampled else []
    yield from aligned(("ACCELERATOR", "HELD", "BUSY", "", *used, "LONGEST GAP", "HELD BY"), rows)
    if more := len(analysis.accelerators) - len(rows):
        yield f" and {count(more, 'other accelerator')}"


def _parallelism(analysis: Analysis) -> Iterator[str]:
    seen = analysis.parallelism
    most = max(seen.buckets, default=0)
    if not most:
        return
    top = len(_HEIGHTS) - 1
    drawn = "".join(_HEIGHTS[min(top, math.ceil(each / most * top))] for each in seen.buckets)
    yield ""
    yield f"Calls that ran at once: {recorded.at_once(analysis)}. Over time:"
    yield f" |{drawn}|"


_HEIGHTS = " .:-=+*#"


def _name(name: str) -> str:
    return shortened(plain(name), _NAME_WIDTH)
