"""Requests to Ray Serve: how they are made, refused and delivered, and which of them are slow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import REPLICA_QUEUE, REQUEST_DELIVERY, within
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.findings.serve import deployments
from ray_tracing_hooks._insight.analysis.functions import are_always_longer, percentile
from ray_tracing_hooks._insight.analysis.requests import SLOWEST, SPAN
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent
from ray_tracing_hooks._insight.model.grouped import greatest_before, split
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.serve_spans import LAG, ServeSpans, is_refused


def refused_requests(analysis: Analysis) -> Iterator[Finding]:
    """Requests that deployments refused because their queue was full (max_queued_requests).

    Measures: their number. It claims no cost, since the client's next step is not recorded.
    Threshold: one request.
    Looks the same: a program that wants requests to be refused under high load.
    Advice: serve faster, send less at once, and wait longer before each new try; or allow a longer queue.
    Needs: spans of the calls of deployments with their errors.
    """
    spans = analysis.serve_spans
    if spans is None:
        return
    table = analysis.table
    called: dict[int, list[int]] = {}
    for row in spans.called.tolist():
        called.setdefault(int(spans.subject[row]), []).append(row)
    for subject, rows in called.items():
        refused = [row for row in rows if spans.is_failed[row] and is_refused(table, row)]
        if not refused:
            continue
        name, _ = spans.named(subject)
        deployment = quoted(name.rpartition(".")[0])
        yield Finding(
            "refused-requests",
            f"{deployment} refused {len(refused):,} of {count(len(rows), 'call')} of {quoted(name)} "
            f"({percent(len(refused) / len(rows))}), because the queue for its replicas was full "
            "(max_queued_requests); over HTTP, that is status 503; the time until clients tried again is not recorded",
            "serve more at once (num_replicas, max_ongoing_requests), or make each request faster; let clients send "
            "fewer at once, and wait longer before each new try; a larger max_queued_requests lets more of them wait",
            0.0,
            refused,
            {"deployment": name.rpartition(".")[0]},
            is_failure=True,
            title=f"{deployment} refuses requests",
        )


IN_TURN = "requests-in-turn"

_TURN_CALLS = 5
_TURN_COST = 0.1
_TURN_NAMED = 3


class _Turns(NamedTuple):
    """Calls of deployments that one kind of caller made one after the other."""

    caller: str
    """Empty for clients over HTTP."""
    is_request: bool
    """Whether each call is a request of its own: then the time of requests has nothing to do with their order."""
    rows: Any
    took: Any
    """How long each took, in nanoseconds."""
    series: Any
    """For each the number of its series, from 0 on."""

    def saved(self, times: Any) -> int:
        """How much longer all took than the longest of each series."""
        longest = np.zeros(self.many, np.int64)
        np.maximum.at(longest, self.series, times)
        return int(times.sum() - longest.sum())

    @property
    def many(self) -> int:
        """How many series there are."""
        return int(self.series[-1]) + 1


def requests_in_turn(analysis: Analysis) -> Iterator[Finding]:
    """Callers that make a call of a deployment only after the previous one has ended, with no other one meanwhile.

    Measures: all of these calls on the critical path except the longest of each series: they might run at once.
    Threshold: 5 calls that follow another, and a tenth of the run, or of the time of requests.
    Looks the same: calls that need the previous result, and clients that wait on purpose. So the cost is an upper
    bound.
    Advice: make all calls before you await the first one, and pass on responses instead of their results.
    Needs: spans of requests. Those over HTTP do not count, since it is not known which client sent them.
    """
    found, spans, wall = analysis.requests, analysis.serve_spans, analysis.path.wall
    if found is None or spans is None or not found.time:
        return
    for turns in _turns(analysis, spans):
        saved = turns.saved(turns.took)
        of_requests = 0.0 if turns.is_request else min(1.0, saved / found.time)
        if len(turns.rows) - turns.many < _TURN_CALLS or max(of_requests, saved / max(1, wall)) < _TURN_COST:
            continue
        share = 0.0
        if wall and not analysis.ends_with_request:
            passed = within(analysis.table, analysis.path, set(turns.rows.tolist()))
            share = turns.saved(np.array([passed[row] for row in turns.rows.tolist()], np.int64)) / wall
        if max(share, of_requests) >= _TURN_COST:
            yield _turn_finding(spans, turns, share, of_requests)


def _turns(analysis: Analysis, spans: ServeSpans) -> Iterator[_Turns]:
    calls = analysis.calls
    above = spans.above[spans.called]
    is_inside = (above >= 0) & (spans.is_replica | spans.is_direct)[above]
    frame, *columns = _in_turn(spans, above[is_inside], spans.called[is_inside])
    for method in np.unique(spans.method[frame]).tolist():
        yield _of_one(spans.named(method)[0], spans.method[frame] == method, columns, is_request=False)
    rows = spans.called[above < 0]
    frame, *columns = _in_turn(spans, as_numpy(calls.frame)[rows], rows)
    callers = np.array([calls.frame_name(each) for each in frame.tolist()], object)
    for caller in dict.fromkeys(callers.tolist()):
        yield _of_one(caller, callers == caller, columns, is_request=True)


def _of_one(caller: str, is_its: Any, columns: list[Any], *, is_request: bool) -> _Turns:
    rows, took, series = (column[is_its] for column in columns)
    return _Turns(caller, is_request, rows, took, np.unique(series, return_inverse=True)[1])


def _in_turn(spans: ServeSpans, frame: Any, rows: Any) -> list[Any]:
    """The calls that follow another of the same frame, or are followed by one, and overlap with none.

    Returns columns, by frame and start: the frame, the row, how long it took, and the number of its series.
    """
    order = np.lexsort((spans.start[rows], frame))
    rows, frame = rows[order], frame[order]
    number = np.unique(frame, return_inverse=True)[1]
    start, took = spans.start[rows], np.maximum(spans.end_of(rows) - spans.start[rows], 0)
    # A replica sends the result a moment before its span ends.
    end = start + took - np.minimum(LAG, took // 10)
    until = greatest_before(number, end, np.zeros(len(rows), np.int64))
    is_next = np.insert(number[1:] == number[:-1], 0, values=False)[: len(rows)] & (until <= start)
    is_new = np.insert(number[1:] != number[:-1], 0, values=True)[: len(rows)]
    is_free = is_new | is_next
    is_alone = (
        is_free & np.append(is_free[1:], values=True)[: len(rows)] & spans.is_ended(rows) & ~spans.is_failed[rows]
    )
    follows = is_next & np.insert(is_alone[:-1], 0, values=False)[: len(rows)] & is_alone
    series = np.cumsum(is_alone & ~follows)
    is_many = is_alone & (np.bincount(series[is_alone], minlength=len(rows) + 1)[series] > 1)
    return [column[is_many] for column in (frame, rows, took, series)]


def _turn_finding(spans: ServeSpans, turns: _Turns, share: float, of_requests: float) -> Finding:
    subjects, many = np.unique(spans.subject[turns.rows], return_counts=True)
    called = [spans.named(int(each))[0] for each in subjects[np.argsort(-many, kind="stable")]]
    which = ", ".join(map(quoted, called[:_TURN_NAMED]))
    if len(called) > _TURN_NAMED:
        which += f" and {len(called) - _TURN_NAMED:,} more"
    each, number = round(float(np.median(turns.took))), len(turns.rows)
    caller = quoted(turns.caller)
    text = (
        f"{caller} made {count(number, 'call')} of {which}{f' in {turns.many:,} series' if turns.many > 1 else ''}, "
        f"each only after the previous one had ended; they took {duration(each)} (median)"
    )
    how = "" if turns.is_request else " (asyncio.gather)"
    advice = (
        f"make the calls before you wait for the first response{how}; if one needs the result of another, pass it the "
        "response itself"
    )
    title = f"{caller} makes one request after the other"
    about = {"caller": turns.caller}
    rows = turns.rows[np.argsort(-turns.took, kind="stable")].tolist()
    return Finding(IN_TURN, text, advice, share, rows, about, title=title, requests_share=of_requests)


_DELIVERY_CALLS = 5
_DELIVERY_LEAST = 10_000_000
_DELIVERY_SHARE = 0.3


def slow_deliveries(analysis: Analysis) -> Iterator[Finding]:
    """Deployments whose calls take long to reach their replicas, though these are free.

    Measures: the time until calls began, on the critical path, without waits for busy replicas.
    Threshold: three tenths of the time of requests, and a median of 10 ms in 5 calls.
    Looks the same: large arguments, a busy caller or router, or too few processors. Sizes are not recorded.
    Advice: pass less, or arrays, or references. See whether the caller computes meanwhile.
    Needs: spans of requests, with how long the choice of a replica took.
    """
    found = analysis.requests
    for each in deployments(analysis):
        took = each.delivered + (0 if each.is_busy else each.waited)
        times = [took for method in each.methods for took in method.waited]
        if found is None or len(times) < _DELIVERY_CALLS or took < _DELIVERY_SHARE * found.time or each.is_busy:
            continue
        usual = percentile(sorted(times), 0.5)
        if usual < _DELIVERY_LEAST:
            continue
        share = 0.0
        if analysis.path.wall and not analysis.ends_with_request:
            share = each.on_path(analysis, analysis.path, REQUEST_DELIVERY, REPLICA_QUEUE) / analysis.path.wall
        yield Finding(
            "slow-deliveries",
            f"{count(len(times), 'call')} of {quoted(each.name)} took {duration(usual)} (median) to reach a replica, "
            f"{percent(took / found.time)} of the time of requests, though replicas were free; arguments "
            "were pickled and sent, or the caller, the router or the replica was busy",
            "pass less, or arrays of NumPy or Arrow, which are not pickled piece by piece; pass a response or a "
            "reference on without reading it; let no other code of the caller hold the interpreter",
            share,
            [row for method in each.methods for row in method.longest],
            {"deployment": each.name},
            title=f"Calls of {quoted(each.name)} take long to reach a replica",
            requests_share=took / found.time,
        )


_SLOW_CALLS = 5
_SLOW_TIMES = 1.5
_SLOW_PARTS = 4
_SLOW_COST = 0.1


def slow_replicas(analysis: Analysis) -> Iterator[Finding]:
    """Replicas in which a method takes clearly longer than in the other replicas of its deployment.

    Measures: the excess over the median elsewhere, on the critical path. The text has its share of the time of
    requests.
    Threshold: a tenth of the run or of the time of requests. The median is 1.5 times as long, and longer in each
    quarter of the calls.
    Looks the same: a router that sends other requests there, such as those for one model.
    Advice: see what else runs on its node, and whether it gets other requests.
    Needs: 5 executions in each of two replicas.
    """
    found, spans = analysis.requests, analysis.serve_spans
    if found is None or spans is None or not found.time:
        return
    rows = np.nonzero((spans.is_replica | spans.is_direct) & spans.is_ended(np.arange(len(spans.start))))[0]
    methods, which = np.unique(spans.method[rows], return_inverse=True)
    for method, own in zip(methods.tolist(), split(which, len(methods), rows)[0], strict=True):
        if (slow := _slowest(spans, own)) is not None:
            there, here, usual, excess = slow
            on_path = within(analysis.table, analysis.path, set(there))
            share = (
                min(1.0, sum(on_path.values()) * (1 - usual / here) / analysis.path.wall) if analysis.path.wall else 0.0
            )
            share = 0.0 if analysis.ends_with_request else share
            of_requests = min(1.0, excess / found.time)
            if max(share, of_requests) < _SLOW_COST:
                continue
            name, _ = spans.named(method)
            replica = str(analysis.table.sites[spans.site[there[0]]].get(names.RAY_SERVE_REPLICA_ID) or "")
            yield Finding(
                "slow-replica",
                f"{quoted(name)} takes {duration(round(here))} in replica {quoted(replica)}, and "
                f"{duration(round(usual))} in the others (medians of {count(len(there), 'request')} and of "
                f"{len(own) - len(there):,}); that is {percent(of_requests)} of the time of requests",
                "see what else runs on its node, whether its hardware differs, and whether it gets different "
                "requests; a new replica in its place would show that",
                share,
                sorted(there, key=lambda row: -spans.took(row)),
                {"method": name, "replica": replica},
                title=f"One replica of {quoted(name.rpartition('.')[0])} is slow",
                requests_share=of_requests,
            )


def _slowest(spans: ServeSpans, rows: Any) -> tuple[list[int], float, float, int] | None:
    """The executions of a method in its slowest replica, the medians there and elsewhere, and the excess in all."""
    replicas, which = np.unique(spans.resource[rows], return_inverse=True)
    took = np.maximum(spans.ends[rows] - spans.start[rows] - spans.loop_wait[rows], 0)
    by_replica = [each for each in split(which, len(replicas), np.arange(len(rows)))[0] if len(each) >= _SLOW_CALLS]
    if len(by_replica) < 2:
        return None
    there = max(by_replica, key=lambda each: float(np.median(took[each])))
    others = took[np.setdiff1d(np.arange(len(rows)), there)]
    here, usual = float(np.median(took[there])), float(np.median(others))
    if here < _SLOW_TIMES * usual or not are_always_longer(took[there], others, _SLOW_PARTS):
        return None
    return rows[there].tolist(), here, usual, int(np.maximum(took[there] - usual, 0).sum())


_SHOWN_DIGITS = 8


def slow_requests(analysis: Analysis) -> Iterator[Finding]:
    """The part of their time that sets the slowest 5 % of requests apart.

    Measures: how much longer that part is in the slowest ones. It claims no cost.
    Threshold: 100 requests, and the slowest take twice as long on average. The part is half of the difference, and
    as long in half of the slowest ones.
    Looks the same: requests of another kind, such as a route that is always slow. A slow replica is another finding.
    Advice: the command that shows the slowest one.
    Needs: spans of requests.
    """
    found = analysis.requests
    tail = found.tail if found is not None else None
    if found is None or tail is None:
        return
    part = tail.part
    if any(each.about["method"] == part.name for each in slow_replicas(analysis)):
        return
    trace = analysis.table.trace_id_of(tail.rows[0])[:_SHOWN_DIGITS]
    text = (
        f"the slowest {percent(SLOWEST)} of {count(found.count, 'request')} took {duration(tail.slow)} on average, the "
        f"others {duration(tail.others)}: {percent(tail.share)} of the difference is {quoted(found.described(part))} "
        f"({duration(tail.slow_part)} instead of {duration(tail.others_part)})"
    )
    command = f"tree --trace {trace} --attributes" if part.kind == SPAN else f"summary --trace {trace}"
    advice = f"ray-tracing-hooks {command} shows the slowest one"
    title = f"The slowest requests are slow by {quoted(found.described(part))}"
    yield Finding("slow-requests", text, advice, 0.0, tail.rows, title=title)
