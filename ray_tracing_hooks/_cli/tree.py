"""``ray-tracing-hooks tree``: prints recorded traces as trees."""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from statistics import median
from typing import Any

import click

from ray_tracing_hooks import names
from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli.options import (
    Number,
    all_option,
    examples,
    job_option,
    json_option,
    parse_duration,
    paths_argument,
    trace_option,
)
from ray_tracing_hooks._cli.screen import cell_len, fitted, is_coloured, terminal_width, warn
from ray_tracing_hooks._insight.analysis import recorded
from ray_tracing_hooks._insight.analysis.wording import count, duration, shortened, size
from ray_tracing_hooks._insight.model import span as model
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.span import KIND_NAMES, Span, call_name, error_text, nanoseconds, was_stopped
from ray_tracing_hooks._insight.model.table import RUNNING, Table
from ray_tracing_hooks._insight.views.outline import Item, Trace, groups, outline, traces
from ray_tracing_hooks._safety.guard import safe

_LEGEND = """\b
How to read it:
  TIME             how long a call ran
  QUEUED           how long it waited before that
  SUBMIT           how long .remote() took
  x300             equal siblings: the median, minimum and maximum of their times
  [retry 1]        a further attempt of a task; [restart 1] of an actor
  [no execution]   a call that no traced worker has started
  [never ended]    a span that its program did not end, so it has no TIME
  [stopped]        a task that Ray Data ended, since it needed no more blocks
  "a name"         the one from .options(name=...)
  ROWS, BYTES      the output of datasets, of their operators, and of their tasks
  TOTAL            the times of these tasks, added up

"""


@click.command(
    epilog=_LEGEND
    + examples(
        "ray-tracing-hooks tree",
        "ray-tracing-hooks tree /tmp/spans --errors",
        "ray-tracing-hooks tree --name 'Worker.*' --min-duration 1s",
    ),
)
@paths_argument
@click.option(
    "--name", metavar="PATTERN", help="Only spans whose name contains this, or matches it as a pattern with * or ?."
)
@click.option("--errors", is_flag=True, help="Only spans that failed or were interrupted.")
@click.option(
    "--min-duration",
    type=parse_duration,
    metavar="DURATION",
    help="Only spans that took at least this long, such as 10ms or 1.5s.",
)
@trace_option
@job_option
@all_option
@click.option("--last", type=Number(1), default=10, show_default=True, help="Show this many traces, the newest first.")
@click.option("--no-collapse", is_flag=True, help="Do not group equal siblings.")
@click.option("--raw", is_flag=True, help="Show submission and execution of a call as two spans.")
@click.option("--attributes", is_flag=True, help="Show the attributes of every span below it.")
@click.option(
    "--attribute",
    "keys",
    metavar="PATTERN",
    multiple=True,
    help="Show attributes whose key matches this, such as ray.arguments or http.*; with KEY=VALUE, only spans in which "
    "an attribute contains VALUE.",
)
@json_option
def tree(
    paths: tuple[str, ...],
    name: str | None,
    errors: bool,
    min_duration: int | None,
    trace_id: str | None,
    job: str | None,
    everything: bool,
    last: int,
    no_collapse: bool,
    raw: bool,
    attributes: bool,
    keys: tuple[str, ...],
    in_json: bool,
) -> None:
    """Show the traces of a run as trees. By default, it is the newest run.

    PATH is a folder or a file of spans, or the spool of a running node; by default RAY_TRACING_LOCAL_DIR, /tmp/spans.
    If you select spans, their ancestors are shown too.

    --json prints a list of traces, each span with its children.
    """
    which = inputs.Which(trace_id, job, everything=everything)
    table, others = which.of(which.table(paths))
    now_ns = table.now_ns
    values = [(key, value) for key, equals, value in (each.partition("=") for each in keys) if equals]
    keep = _chosen(table, name, errors, min_duration, values)
    chosen = [part for trace in traces(table) if (part := trace.selected(keep) if keep else trace)]
    shown = chosen[:last]
    if in_json:
        _print_json(shown, now_ns)
    elif shown:
        shape = _Shape(
            pair=not raw,
            collapse=not no_collapse,
            keys=("*",) if attributes else [each.partition("=")[0] for each in keys],
            trace_url=inputs.trace_url(),
        )
        _print_trees(shown, len(chosen), shape, now_ns)
    if not shown:
        click.echo(f"no span matches: searched {count(len(table.traces), 'trace')}", err=True)
    if others > 1:
        warn(
            f"this is the newest of {count(others, 'run')}; --job ID shows another, --all shows all",
            "note",
        )
    if note := _note(table.quality, shown):
        click.echo(note, err=True)


def _chosen(
    table: Table, name: str | None, errors: bool, min_duration: int | None, values: Sequence[tuple[str, str]]
) -> Callable[[int], bool] | None:
    """Whether a span is wanted, by its row; None if all are. ``values``: keys of attributes, and what these contain."""
    if name is None and not errors and min_duration is None and not values:
        return None
    is_named = list(map(_fits(name or ""), table.names))

    def keep(row: int) -> bool:
        return (
            is_named[table.name[row]]
            and (not errors or (table.failed(row) and _is_error(table.span(row))))
            and (min_duration is None or _took(table, row) >= min_duration)
            and (not values or all(_has(table.span(row), key, value) for key, value in values))
        )

    return keep


def _has(span: Span, key: str, value: str) -> bool:
    return any(fnmatchcase(name, key) and _fits(value)(str(given)) for name, given in span.attributes.items())


def _took(table: Table, row: int) -> int:
    """How long a span took, or has taken so far; 0 if that is not known."""
    if table.sites[table.site[row]].get(names.RAY_NEVER_ENDED):
        return 0
    end = table.end[row] or (table.now_ns if table.state[row] == RUNNING else 0)
    return max(0, end - table.start[row])


def _is_error(span: Span) -> bool:
    return span.failed and not was_stopped(span)


def _fits(pattern: str) -> Callable[[str], bool]:
    if any(wildcard in pattern for wildcard in "*?["):
        return lambda name: fnmatchcase(name, pattern) or fnmatchcase(call_name(name), pattern)
    return lambda name: pattern in name


def _note(quality: Quality, shown: Sequence[Trace]) -> str:
    """One line on problems with the data; empty without any."""
    wrong = recorded.of_all(
        replace(
            quality,
            orphans=sum(len(trace.orphans) for trace in shown),
            continuing=sum(trace.continuing for trace in shown),
            of_open_drivers=sum(trace.of_open_drivers for trace in shown),
        )
    )
    said = "; ".join(wrong)
    return f"note: {safe(said)}" if said else ""


# --- JSON ---------------------------------------------------------------------------------------------------------


def _print_json(traces: Sequence[Trace], now_ns: int) -> None:
    click.echo("[", nl=False)
    for position, trace in enumerate(traces):
        click.echo(",\n" if position else "\n", nl=False)
        click.echo("".join(_trace_json(trace, now_ns)), nl=False)
    click.echo("\n]" if traces else "]")


def _trace_json(trace: Trace, now_ns: int) -> Iterator[str]:
    """The JSON text of one trace in parts. ``json.dumps`` alone would exceed the recursion limit on deep chains."""
    head = {
        "trace_id": trace.trace_id,
        "start_unix_nano": trace.start_ns,
        "duration_ns": _extent(trace, now_ns),
        "spans": trace.size,
        "errors": sum(map(_is_error, trace.spans.values())),
        "orphans": len(trace.orphans),
    }
    yield json.dumps(head)[:-1] + ', "roots": ['
    # A None closes the list of children of a span.
    pending: list[int | None] = [None, *reversed(trace.roots)]
    first = True
    while pending:
        row = pending.pop()
        if row is None:
            yield "]}"
            first = False
            continue
        yield ("" if first else ", ") + json.dumps(_span_json(trace.spans[row], now_ns))[:-1] + ', "children": ['
        pending.append(None)
        pending.extend(reversed(trace.children(row)))
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
    """The value with numbers that JSON cannot represent as text."""
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
    """A line before its columns are aligned: guide, name and marks, then the cells of the columns."""

    guide: str
    name: str
    marks: str
    style: str
    cells: tuple[str, ...]


@dataclass(slots=True)
class _Remark:
    """A line without columns: the heading of a trace, or the error of the span above."""

    guide: str
    text: str
    style: str


_Part = tuple[str, str]
"""A part of a printed line, and its style."""

_STYLES: dict[str, dict[str, Any]] = {
    "bold": {"bold": True},
    "dim": {"dim": True},
    "red": {"fg": "red"},
    "yellow": {"fg": "yellow"},
}

_COLUMNS = ("TIME", "MIN .. MAX", "TOTAL", "QUEUED", "SUBMIT", "ROWS", "BYTES", "WHERE")
_TIME, _EXTREMES, _TOTAL, _QUEUED, _SUBMIT, _ROWS, _BYTES, _WHERE = range(len(_COLUMNS))
_LEAST_NEEDED = (_EXTREMES, _SUBMIT, _TOTAL, _BYTES, _WHERE, _QUEUED, _ROWS)
"""Columns that are left out if the terminal is too narrow, in this order."""

_PHASES = {
    "queue": names.GEN_AI_QUEUE_TIME,
    "prefill": names.GEN_AI_PREFILL_TIME,
    "decode": names.GEN_AI_DECODE_TIME,
}
"""Of generations of LLM engines."""

_CREATION = names.execution_name(".__init__")

_LONGEST_WHERE = 48
_SHORTEST_WHERE = 16
_SHORTEST_NAME = 24
_LONGEST_NAME = 100
_LONGEST_GIVEN = 40
_LONGEST_VALUE = 400
_SHOWN_VALUES = 3
_DEEPEST = 3 * 40
"""Beyond this many characters, deeper levels are not indented any further."""


@dataclass(frozen=True)
class _Shape:
    pair: bool
    """Whether the submission of a call and its execution are one line."""
    collapse: bool
    """Whether equal siblings are one line."""
    keys: Sequence[str]
    """Patterns for the keys of attributes to show."""
    trace_url: str
    """Where a back end shows a trace; empty if nowhere."""


def _print_trees(traces: Sequence[Trace], total: int, shape: _Shape, now_ns: int) -> None:
    lines: list[_Line | _Remark] = []
    for trace in traces:
        lines.append(_Remark("", _heading(trace, now_ns), "bold"))
        if shape.trace_url:
            lines.append(_Remark("", inputs.linked(shape.trace_url, trace.trace_id), "dim"))
        lines.extend(_trace_lines(trace, shape, now_ns))
        lines.append(_Remark("", "", ""))
    width = terminal_width(sys.stdout) if sys.stdout.isatty() else None
    has_colour = is_coloured(sys.stdout)
    for parts in _aligned(lines, width):
        click.echo(_styled(parts, has_colour=has_colour))
    if total > len(traces):
        text = f"{count(total - len(traces), 'older trace')} not shown; --last {total} shows all"
        click.echo(_styled([(text, "dim")], has_colour=has_colour))


def _heading(trace: Trace, now_ns: int) -> str:
    spans = trace.spans
    errors = sum(map(_is_error, spans.values()))
    start = datetime.fromtimestamp(trace.start_ns / 1e9).astimezone()
    parts = [f"trace {trace.trace_id}", f"{start:%Y-%m-%d %H:%M:%S}", duration(_extent(trace, now_ns))]
    of_all = f" of {trace.size:,}" if trace.size != len(spans) else ""
    parts.append(f"{len(spans):,}{of_all} {'span' if trace.size == 1 else 'spans'}")
    return "   ".join([*parts, f"{errors:,} failed"] if errors else parts)


def _extent(trace: Trace, now_ns: int) -> int:
    """The time from the first start to the last known end."""
    ends = (span.start_ns + (span.duration_ns(now_ns) or 0) for span in trace.spans.values())
    return max(ends) - trace.start_ns


_BRANCH, _LAST, _LINE, _GAP = "├─ ", "└─ ", "│  ", "   "
"""The parts of a guide."""


def _trace_lines(trace: Trace, shape: _Shape, now_ns: int) -> Iterator[_Line | _Remark]:
    shared_hosts = _shared_hosts(trace)
    is_live = any(span.state == "running" for span in trace.spans.values())
    # The groups still to print, the next one last, each with its own guide and that of its children.
    pending = [(group, "", "") for group in reversed(groups(outline(trace, pair=shape.pair), collapse=shape.collapse))]
    while pending:
        group, guide, below = pending.pop()
        children = groups((child for item in group for child in item.children), collapse=shape.collapse)
        span = group[0].span
        marks = _given_name(group)
        if stage := group[0].stage:
            marks += f" ({safe(stage)})"
        marks += f" x{len(group):,}" if len(group) > 1 else ""
        if attempt := group[0].attempt:
            marks += f" [{'restart' if span.name.endswith(_CREATION) else 'retry'} {attempt}]"
        if left_out := _left_out(group):
            marks += f" +{left_out:,} left out"
        is_error = _is_error(span)
        if span.failed and not is_error:
            marks += " [stopped]"
        elif span.state != "ended":
            marks += f" [{span.state}]"
        if span.never_ended:
            marks += " [never ended]"
        if group[0].is_unexecuted:
            marks += " [not begun]" if is_live else " [no execution]"
        style = "red" if is_error else "yellow" if span.state == "running" else ""
        cells = (*_figures(group, now_ns), safe(_where(group, shared_hosts)))
        yield _Line(guide, safe(group[0].name), marks, style, cells)
        if is_error:
            error = safe(_error(group))
            yield _Remark(below + (_LINE if children else _GAP), f"✗ {error}", "red")
        if text := _after_end(group[0]):
            yield _Remark(below + (_LINE if children else _GAP), safe(text), "dim")
        if not children and (text := _phases(group)):
            yield _Remark(below + _GAP, text, "dim")
        for text in _attributes(group, shape.keys):
            yield _Remark(below + (_LINE if children else _GAP), safe(text), "dim")
        below = below[:_DEEPEST]
        for child in reversed(children):
            end = child is children[-1]
            pending.append((child, below + (_LAST if end else _BRANCH), below + (_GAP if end else _LINE)))


def _after_end(item: Item) -> str:
    """Of a trace that began in a context whose span had ended: where that one is. Otherwise empty."""
    for span in (item.submission, item.span):
        after = span.attributes.get(names.RAY_AFTER_END) if span is not None else None
        if span is not None and span.links and isinstance(after, float) and math.isfinite(after):
            ended = span.links[0]
            return f"begun {duration(after * 1e9)} after the end of span {ended.span_id} of trace {ended.trace_id}"
    return ""


def _phases(group: Sequence[Item]) -> str:
    """How long the phases of generations took, such as ``queue 33.3 us, prefill 4.85 ms``; medians of a group."""
    parts = []
    for name, key in _PHASES.items():
        found = [nanoseconds(value) for item in group if (value := item.span.attributes.get(key)) is not None]
        parts += [f"{name} {_median(found)}"] if found else []
    return ", ".join(parts)


def _attributes(group: Sequence[Item], patterns: Sequence[str]) -> Iterator[str]:
    """The attributes of a group whose keys match one of the patterns, each with its values."""
    if not patterns:
        return
    found: dict[str, dict[str, None]] = {}
    for item in group:
        spans = (item.submission, item.span)
        merged = {key: value for span in spans if span is not None for key, value in span.attributes.items()}
        for key, value in merged.items():
            if any(fnmatchcase(key, pattern) for pattern in patterns):
                text = value if isinstance(value, str) else json.dumps(_plain(value), default=str)
                found.setdefault(key, {})[shortened(text, _LONGEST_VALUE)] = None
    for key, values in found.items():
        first = list(values)[:_SHOWN_VALUES]
        more = f" and {len(values) - len(first):,} other values" if len(values) > len(first) else ""
        yield f"{key}: {', '.join(first)}{more}"


def _given_name(group: Sequence[Item]) -> str:
    """The names of these calls from ``.options(name=...)``."""
    given = {item.given_name for item in group}
    named = {name for name in given if name}
    if not named:
        return ""
    if len(given) > 1:  # the absence of a name counts too
        return f" ({count(len(named), 'name')})"
    return f' "{safe(shortened(named.pop(), _LONGEST_GIVEN))}"'


def _left_out(group: Sequence[Item]) -> int:
    """How many calls a rate limit has left out, as counted by these spans."""
    counts = [
        span.attributes.get(names.RAY_LEFT_OUT) for item in group for span in (item.submission, item.span) if span
    ]
    return sum(number for number in counts if isinstance(number, int))


def _figures(group: Sequence[Item], now_ns: int) -> tuple[str, ...]:
    """The cells of the columns before the last; times are medians if the group has several items."""
    spans = [item.span for item in group if not _has_no_end(item.span)]
    taken = [taken for span in spans if (taken := span.duration_ns(now_ns)) is not None]
    queued = [item.queued_ns for item in group if item.queued_ns is not None]
    submissions = [item.submission for item in group if item.submission is not None]
    submitting = [each.duration_ns(now_ns) or 0 for each in submissions if not _has_no_end(each)]
    extremes = f"{duration(min(taken))} .. {duration(max(taken))}" if taken and len(group) > 1 else ""
    is_for_blocks = names.RAY_DATA_OPERATOR in group[0].span.attributes
    total = duration(sum(taken)) if taken and len(group) > 1 and is_for_blocks else ""
    rows, bytes_ = _sum(group, names.RAY_DATA_ROWS), _sum(group, names.RAY_DATA_BYTES)
    return (
        *(_median(taken), extremes, total, _median(queued), _median(submitting)),
        "" if rows is None else f"{rows:,}",
        "" if bytes_ is None else size(bytes_),
    )


def _has_no_end(span: Span) -> bool:
    """Whether only the start of a submission is known, since a worker has recorded it with its execution."""
    return span.start_ns == span.end_ns and names.RAY_SAMPLING_REASON in span.attributes


def _sum(group: Sequence[Item], key: str) -> int | None:
    """The sum of an attribute over the group; None if none of its spans has it."""
    found = [value for item in group if isinstance(value := item.span.attributes.get(key), int)]
    return sum(found) if found else None


def _median(durations: Sequence[int]) -> str:
    return duration(median(durations)) if durations else ""


def _error(group: Sequence[Item]) -> str:
    texts = {error_text(item.span): None for item in group}
    first, *others = texts
    return f"{first} (and {count(len(others), 'other message')})" if others else first


def _shared_hosts(trace: Trace) -> set[str]:
    """The hosts with more than one Ray node in this trace, where the host name alone is ambiguous."""
    nodes = {(_host(span), _node(span)) for span in trace.spans.values()}
    return {host for host, number in Counter(host for host, node in nodes if node).items() if number > 1}


def _where(group: Sequence[Item], shared_hosts: set[str]) -> str:
    """Where the group ran: the process, or the number of processes, and the actor if any."""
    spans = [item.span for item in group]
    places = list(dict.fromkeys(_place(span, shared_hosts) for span in spans))
    if len(places) == 1:
        where = places[0]
    else:
        nodes = {(_host(span), _node(span)) for span in spans}
        where = count(len(places), "process", "processes")
        where += f" on {count(len(nodes), 'node')}" if len(nodes) > 1 else ""
    actors = {actor: None for span in spans if (actor := _actor(span))}
    if actors:
        where += f" {next(iter(actors))}" if len(actors) == 1 else f", {count(len(actors), 'actor')}"
    return where


def _place(span: Span, shared_hosts: set[str]) -> str:
    host = _host(span)
    if host in shared_hosts:
        host += f"/{_node(span)}"
    pid = span.attributes.get(names.RAY_PID) or span.resource.get("process.pid") or ""
    driver = " driver" if span.resource.get(names.RESOURCE_PROCESS_TYPE) == "driver" else ""
    return (f"{host}:{pid}" if pid else host) + driver


def _host(span: Span) -> str:
    """The host's name without its domain, or the beginning of the node's id if the name is not recorded."""
    host = str(span.resource.get("host.name") or _node(span))
    return host if re.fullmatch(r"[\d.]+", host) else host.partition(".")[0]


def _node(span: Span) -> str:
    return str(span.attributes.get(names.RAY_NODE_ID) or span.resource.get(names.RESOURCE_NODE_ID) or "")[:8]


def _actor(span: Span) -> str:
    # On a submission, these attributes belong to the called actor, which is elsewhere.
    if span.kind != model.CONSUMER or not span.attributes.get(names.RAY_ACTOR_ID):
        return ""
    actor_class = str(span.attributes.get(names.RAY_ACTOR_CLASS, "")).rpartition(".")[2]
    return f"{actor_class}#{str(span.attributes[names.RAY_ACTOR_ID])[:8]}"


def _aligned(lines: Sequence[_Line | _Remark], width: int | None) -> Iterator[list[_Part]]:
    """The printed lines. ``width`` is that of the terminal; without one nothing is truncated."""
    rows = [line for line in lines if isinstance(line, _Line)]
    widths = {
        column: max(len(title), *(cell_len(row.cells[column]) for row in rows))
        for column, title in enumerate(_COLUMNS)
        if any(row.cells[column] for row in rows)
    }
    name_width = min(_LONGEST_NAME, max(cell_len(row.guide + row.name + row.marks) for row in rows))
    if width is not None:
        widths[_WHERE] = min(widths.get(_WHERE, 0), _LONGEST_WHERE)
        for column in _LEAST_NEEDED:
            lacking = min(name_width, _SHORTEST_NAME) - (width - _taken(widths))
            if column == _WHERE and lacking > 0:
                shorter = min(widths[_WHERE], max(_SHORTEST_WHERE, widths[_WHERE] - lacking))
                lacking -= widths[_WHERE] - shorter
                widths[_WHERE] = shorter
            if lacking <= 0:
                break
            widths.pop(column, None)
        name_width = min(name_width, width - _taken(widths))

    def cells(texts: Sequence[str]) -> list[_Part]:
        return [
            ("  " + texts[column].rjust(widths[column]), "" if column == _TIME else "dim")
            if column != _WHERE
            else ("  " + _cut(texts[column], widths[column]), "dim")
            for column in widths
        ]

    yield [(" " * name_width, ""), *((text, "dim") for text, _ in cells(_COLUMNS))]
    for line in lines:
        if isinstance(line, _Remark):
            room = None if width is None or not line.guide else width - cell_len(line.guide)
            remark = line.text if room is None else _cut(line.text, room)
            yield [(line.guide, "dim"), (remark, line.style)]
            continue
        guide, name = line.guide, line.name
        if width is not None:
            room = name_width - cell_len(line.marks)
            guide = _cut(guide, room - min(cell_len(name), _SHORTEST_NAME // 2))
            name = _cut(name, room - cell_len(guide))
        padding = " " * max(0, name_width - cell_len(guide + name + line.marks))
        yield [(guide, "dim"), (name, line.style), (line.marks, "bold"), (padding, ""), *cells(line.cells)]


def _styled(parts: Sequence[_Part], *, has_colour: bool) -> str:
    """A line without the spaces at its end."""
    shown = list(parts)
    while shown and not shown[-1][0].strip():
        shown.pop()
    if shown:
        shown[-1] = shown[-1][0].rstrip(), shown[-1][1]
    return "".join(click.style(text, **_STYLES[style]) if has_colour and style else text for text, style in shown)


def _taken(widths: Mapping[int, int]) -> int:
    """The total width of columns with these widths, with the gaps between them."""
    return sum(widths.values()) + 2 * len(widths)


def _cut(text: str, width: int) -> str:
    """The text without its middle if it is wider than ``width``: both ends of a name are the most informative."""
    if cell_len(text) <= width:
        return text
    if width < 2:
        return ""
    tail = (width - 1) // 2
    return fitted(text, width - 1 - tail) + "…" + fitted(text[::-1], tail)[::-1]
