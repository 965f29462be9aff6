"""``ray-tracing-hooks tree``: recorded traces as trees of text."""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from ray_tracing_hooks import names
from ray_tracing_hooks._cli import source
from ray_tracing_hooks._cli.text import Duration, count, duration, safe
from ray_tracing_hooks._insight import model
from ray_tracing_hooks._insight.model import KIND_NAMES, Node, Span, Trace
from ray_tracing_hooks._insight.outline import Item, call_name, error_text, groups, outline, select
from ray_tracing_hooks._insight.read import Quality

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--name", metavar="PATTERN", help="Only spans whose name contains this, or fits it if it has * or ?.")
@click.option("--trace", "trace_id", metavar="ID", help="Only the trace whose id begins so.")
@click.option("--errors", is_flag=True, help="Only spans that failed or were cut off.")
@click.option("--min-duration", type=Duration(), metavar="TIME", help="Only spans that took this long, as 10ms or 1.5s.")
@click.option("--last", type=click.IntRange(min=1), default=10, show_default=True, help="How many traces.")
@click.option("--all", "everything", is_flag=True, help="All traces.")
@click.option("--no-collapse", is_flag=True, help="Do not put equal siblings together.")
@click.option("--raw", is_flag=True, help="Submission and execution of a call as the two spans that they are.")
@click.option("--json", "as_json", is_flag=True, help="A JSON list of traces, every span with its children.")
def tree(  # noqa: PLR0913  one argument an option
    paths: tuple[str, ...],
    name: str | None,
    trace_id: str | None,
    errors: bool,
    min_duration: int | None,
    last: int,
    everything: bool,
    no_collapse: bool,
    raw: bool,
    as_json: bool,
) -> None:
    """Show traces as trees, the newest first.

    PATH is a folder with *.jsonl files of OTLP-JSON, one such file, or the spool of a running node; by default the
    folder of RAY_TRACING_LOCAL_DIR, /tmp/spans. Options that choose spans keep the spans above them too.

    A call is one line: TIME is its execution, SUBMIT what .remote() took, QUEUED the time between. Equal siblings
    are one line, as "x300" with the median of their times and the least and greatest.
    """
    if trace_id is not None and not re.fullmatch("[0-9a-fA-F]{1,32}", trace_id):
        raise click.BadParameter(f"{trace_id!r} is no trace id: expected up to 32 hex digits", param_hint="--trace")
    spans, quality = source.read(paths)
    now_ns = time.time_ns()
    traces = model.traces(spans)
    orphans = sum(trace.orphans for trace in traces)
    keep = _chosen(name, errors, min_duration, now_ns)
    chosen = [
        Trace(trace.trace_id, roots, trace.orphans)
        for trace in traces
        if trace_id is None or trace.trace_id.startswith(trace_id.lower())
        if (roots := select(trace.roots, keep) if keep else trace.roots)
    ]
    shown = chosen if everything else chosen[:last]
    if as_json:
        _print_json(shown, now_ns)
    elif shown:
        _print_trees(shown, len(chosen), pair=not raw, collapse=not no_collapse, now_ns=now_ns)
    if not shown:
        click.echo(f"none of {count(len(traces), 'trace')} has such a span", err=True)
    if note := _note(quality, orphans):
        click.echo(note, err=True)


def _chosen(name: str | None, errors: bool, min_duration: int | None, now_ns: int) -> Callable[[Span], bool] | None:
    if name is None and not errors and min_duration is None:
        return None
    fits = _fits(name or "")

    def keep(span: Span) -> bool:
        return (
            fits(span.name)
            and (not errors or span.failed)
            and (min_duration is None or (span.duration_ns(now_ns) or 0) >= min_duration)
        )

    return keep


def _fits(pattern: str) -> Callable[[str], bool]:
    if any(wildcard in pattern for wildcard in "*?["):
        return lambda name: fnmatchcase(name, pattern) or fnmatchcase(call_name(name), pattern)
    return lambda name: pattern in name


def _note(quality: Quality, orphans: int) -> str:
    """One line on what is wrong with the data; empty if nothing is."""
    wrong = []
    if quality.bad_lines:
        wrong.append(f"{count(quality.bad_lines, 'bad line')} skipped (the first: {safe(str(quality.problems[0]))})")
    if quality.dropped:
        wrong.append(f"{count(quality.dropped, 'span')} could not be recorded")
    if orphans:
        wrong.append(f"{count(orphans, 'span')} without the parent they name")
    if quality.lost:
        wrong.append(f"{count(quality.lost, 'span')} cut off by the death of their process")
    if quality.running:
        wrong.append(f"{count(quality.running, 'span')} still running")
    return f"note: {'; '.join(wrong)}" if wrong else ""


# --- JSON ---------------------------------------------------------------------------------------------------------


def _print_json(traces: Sequence[Trace], now_ns: int) -> None:
    click.echo("[", nl=False)
    for position, trace in enumerate(traces):
        click.echo(",\n" if position else "\n", nl=False)
        for part in _trace_json(trace, now_ns):
            click.echo(part, nl=False)
    click.echo("\n]" if traces else "]")


def _trace_json(trace: Trace, now_ns: int) -> Iterator[str]:
    """The text of one trace in parts. Not one call of ``json.dumps``: a chain of calls may be deeper than it can go."""
    head = {
        "trace_id": trace.trace_id,
        "start_unix_nano": trace.start_ns,
        "duration_ns": _extent(trace, now_ns),
        "spans": sum(1 for _ in trace.nodes()),
        "errors": sum(node.span.failed for node in trace.nodes()),
        "orphans": trace.orphans,
    }
    yield json.dumps(head)[:-1] + ', "roots": ['
    # A None closes the list of children of the span whose children are all done.
    pending: list[Node | None] = [None, *reversed(trace.roots)]
    first = True
    while pending:
        node = pending.pop()
        if node is None:
            yield "]}"
            first = False
            continue
        yield ("" if first else ", ") + json.dumps(_span_json(node.span, now_ns))[:-1] + ', "children": ['
        pending.append(None)
        pending.extend(reversed(node.children))
        first = True


def _span_json(span: Span, now_ns: int) -> dict[str, Any]:
    return {
        "name": span.name,
        "span_id": span.span_id,
        "parent_span_id": span.parent_id,
        "kind": KIND_NAMES.get(span.kind, "UNSPECIFIED"),
        "start_unix_nano": span.start_ns,
        "end_unix_nano": span.end_ns or None,
        "duration_ns": span.duration_ns(now_ns),
        "state": span.state,
        "status": {model.STATUS_OK: "ok", model.STATUS_ERROR: "error"}.get(span.status_code, "unset"),
        "status_message": span.status_message,
        "error": error_text(span) or None,
        "scope": span.scope,
        "attributes": _plain(span.attributes),
        "events": [
            {"name": event.name, "time_unix_nano": event.time_ns, "attributes": _plain(event.attributes)}
            for event in span.events
        ],
        "links": [
            {"trace_id": link.trace_id, "span_id": link.span_id, "attributes": _plain(link.attributes)}
            for link in span.links
        ],
        "resource": _plain(span.resource),
    }


def _plain(value: Any) -> Any:
    """The value with what JSON has no number for as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


# --- Text ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Line:
    """A line before its columns are aligned. ``below`` is a remark on a line of its own, such as the error."""

    guide: str
    name: str
    style: str
    cells: tuple[str, ...] = ()
    guide_below: str = ""
    below: str = ""


_COLUMNS = ("TIME", "MIN .. MAX", "QUEUED", "SUBMIT", "WHERE")
_LEFT_ALIGNED = ("WHERE",)
_SHORTEST_NAME = 24


def _print_trees(traces: Sequence[Trace], total: int, *, pair: bool, collapse: bool, now_ns: int) -> None:
    from rich.console import Console  # noqa: PLC0415  a command that prints no tree needs not wait for it

    console = Console(highlight=False, soft_wrap=True)
    lines: list[_Line] = []
    for position, trace in enumerate(traces):
        if position:
            lines.append(_Line("", "", ""))
        lines.append(_Line("", _heading(trace, now_ns), "bold"))
        lines.extend(_outline_lines(trace, console, pair=pair, collapse=collapse, now_ns=now_ns))
    for text in _aligned(lines, console):
        console.print(text)
    if total > len(traces):
        console.print(f"\n{count(total - len(traces), 'older trace')} not shown: --all or --last N shows more", style="dim")


def _heading(trace: Trace, now_ns: int) -> str:
    nodes = [node.span for node in trace.nodes()]
    errors = sum(span.failed for span in nodes)
    parts = [
        f"trace {trace.trace_id}",
        datetime.fromtimestamp(trace.start_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        duration(_extent(trace, now_ns)),
        count(len(nodes), "span"),
    ]
    return "   ".join([*parts, count(errors, "error")] if errors else parts)


def _extent(trace: Trace, now_ns: int) -> int:
    """From the first start to the last end that is known."""
    return max(span.start_ns + (span.duration_ns(now_ns) or 0) for span in _spans(trace)) - trace.start_ns


def _spans(trace: Trace) -> Iterator[Span]:
    return (node.span for node in trace.nodes())


def _outline_lines(trace: Trace, console: Console, *, pair: bool, collapse: bool, now_ns: int) -> Iterator[_Line]:
    ascii_only = console.options.ascii_only
    branch, last_branch, bar = ("|- ", "`- ", "|  ") if ascii_only else ("├─ ", "└─ ", "│  ")
    crowded = _hosts_of_several_nodes(trace)
    # Groups whose line is still to come, the next one last, each with the guide of its parent's children.
    pending = [(group, "", True) for group in reversed(groups(outline(trace.roots, pair=pair), collapse=collapse))]
    is_last = {id(pending[0][0])} if pending else set()
    ...
