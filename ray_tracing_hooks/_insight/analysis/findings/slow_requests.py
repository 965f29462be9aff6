"""What distinguishes the slowest requests to Ray Serve from the others."""

from __future__ import annotations

from collections.abc import Iterator

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.requests import CODE, LOOP, REPLICA_WAIT, SLOWEST, SPAN, Part
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent

KIND = "slow-requests"

_SHOWN_DIGITS = 8


def find(analysis: Analysis) -> Iterator[Finding]:
    """A part of the time of requests that makes up at least half of what the slowest 5 % of them take longer.

    From 100 requests on, where the slowest take at least twice as long on average, and the part is that long in half of
    them or more. Different requests may differ in the same way, such as a route that is slow each time. It needs the
    spans of requests alone.
    """
    found = analysis.requests
    tail = found.tail if found is not None else None
    if found is None or tail is None:
        return
    part = tail.part
    trace = analysis.table.trace_id_of(tail.rows[0])[:_SHOWN_DIGITS]
    where = f", mostly in replica {quoted(tail.replica)}" if tail.replica else ""
    text = (
        f"the slowest {percent(SLOWEST)} of {count(found.count, 'request')} took {duration(tail.slow)} on average, the "
        f"others {duration(tail.others)}: {percent(tail.share)} of the difference is {quoted(found.described(part))} "
        f"({duration(tail.slow_part)} instead of {duration(tail.others_part)}){where}"
    )
    command = f"tree --trace {trace} --attributes" if part.kind == SPAN else f"summary --trace {trace}"
    advice = f"ray-tracing-hooks {command} shows the slowest one{_more(part)}"
    figures: dict[str, float | int | str] = {
        "requests": found.count,
        "slowest": found.slow,
        "kind": part.kind,
        "name": part.name,
        "span": part.span,
        "replica": tail.replica,
        "slow_ns": round(tail.slow),
        "others_ns": round(tail.others),
        "part_slow_ns": round(tail.slow_part),
        "part_others_ns": round(tail.others_part),
        "difference_share": tail.share,
    }
    title = f"The slowest requests are slow by {quoted(found.described(part))}"
    yield Finding(KIND, text, advice, 0.0, tail.rows, figures, title=title)


def _more(part: Part) -> str:
    if part.kind == CODE:
        return "; spans of your own in this method would show what takes the time"
    if part.kind in (REPLICA_WAIT, LOOP):
        return "; see whether many requests came at that time"
    return ""
