"""What the commands that show spans have in common: where the spans are, and reading them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from ray_tracing_hooks._cli.text import SafeError, warn
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.queues import beside
from ray_tracing_hooks._insight.analysis.wording import count
from ray_tracing_hooks._insight.ingest import read as reading
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.runs import part_of, runs
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._settings import load as load_settings

_Read = TypeVar("_Read")

LONG_BYTES = 32 * 1024 * 1024
"""From this size on, reading takes long enough for a progress bar."""

_HOW_TO_RECORD = (
    "To record some, run a program by `ray-tracing-hooks run program.py`, or with "
    'ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup"); or name the folder that holds them.'
)


def redaction_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of what is written to be passed on: ``no_attributes`` and ``redact``, for a ``Redaction``."""
    left_out = click.option("--no-attributes", is_flag=True, help="Only names, ids, times and outcomes.")
    hidden = click.option(
        "--redact",
        metavar="KEY",
        multiple=True,
        help="Do not show values of this attribute; * and ? stand for anything.",
    )
    return left_out(hidden(command))


def read(paths: Sequence[str]) -> tuple[list[Span], Quality]:
    """The spans below ``paths``, or in the configured local folder if there are none.

    Ends the command with exit code 2 for a path that cannot be read and 1 where there are no spans.
    """
    found = files(paths)
    spans, quality = with_progress(found, reading.read)
    if not spans:
        raise SafeError(no_spans(paths, quality))
    return spans, quality


def table(paths: Sequence[str]) -> Table:
    """The same as a table."""
    found = files(paths)
    read = with_progress(found, load)
    if not len(read):
        raise SafeError(no_spans(paths, read.quality))
    return read


def chosen(table: Table, trace_id: str | None, paths: Sequence[str] = ()) -> tuple[Analysis, int]:
    """The newest run, or the trace whose id begins so, with clocks set right; and how many runs there are.

    With the task states that stand beside the spans below ``paths``, or in the configured local folder.
    Ends the command with exit code 2 where there is no such trace.
    """
    if trace_id is None:
        found = runs(table)
        return analysed(part_of(table, found[0]), paths), len(found)
    return analysed(selected(table, trace_id), paths), 1


def analysed(table: Table, paths: Sequence[str]) -> Analysis:
    """All of a table, with clocks set right, and with the task states that stand beside the spans below ``paths``."""
    states = beside(given(paths), table.ids)
    for problem in states.problems:
        warn(problem)
    return Analysis.corrected(table, states)


def selected(table: Table, trace_id: str | None) -> Table:
    """The spans of the newest run, or of the trace whose id begins so; ends the command in the same way."""
    if trace_id is None:
        return part_of(table, runs(table)[0])
    if not re.fullmatch("[0-9a-fA-F]{1,32}", trace_id):
        raise click.BadParameter(f"{trace_id!r} is no trace id: expected up to 32 hex digits", param_hint="--trace")
    fits = [trace.startswith(trace_id.lower()) for trace in table.traces]
    rows = [row for row, trace in enumerate(table.trace) if fits[trace]]
    if not rows:
        raise click.BadParameter(f"none of {count(len(table.traces), 'trace')} begins so", param_hint="--trace")
    return table.part(rows)


def files(paths: Sequence[str]) -> list[str]:
    """The files with spans below ``paths``, or in the configured local folder if there are none; at least one.

    Ends the command with exit code 2 for a path that cannot be read and 1 where there are no such files.
    """
    try:
        found = span_files(given(paths))
    except FileNotFoundError as error:
        if not paths:
            raise SafeError(f"no spans yet: there is no folder {_where(paths)}. {_HOW_TO_RECORD}") from None
        raise click.BadParameter(
            f"{error.filename!r} does not exist: expected a folder of spans or a file of them", param_hint="PATH"
        ) from None
    except OSError as error:
        raise click.BadParameter(f"{error.filename!r} cannot be read: {error.strerror}", param_hint="PATH") from None
    if not found:
        raise SafeError(f"no spans in {_where(paths)}: it holds no *.jsonl, *.jsonl.gz or *.spool. {_HOW_TO_RECORD}")
    return found


def no_spans(paths: Sequence[str], quality: Quality) -> str:
    """What to say where there are files and no spans in them."""
    first = f" The first of {quality.bad_lines} problems: {quality.problems[0]}." if quality.problems else ""
    return f"no spans in {_where(paths)}, though there are files for them.{first} {_HOW_TO_RECORD}"


def with_progress(found: Sequence[str], read: Callable[[Sequence[str], Callable[[int], None]], _Read]) -> _Read:
    """What ``read`` makes of the files, with a progress bar if there is much of it and a terminal to show it."""
    size = sum(os.path.getsize(file) for file in found if os.path.exists(file))
    if size < LONG_BYTES:
        return read(found, lambda _count: None)
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading spans", total=size)
        return read(found, lambda count: progress.advance(task, count))


def given(paths: Sequence[str]) -> list[str]:
    """The paths, or the configured local folder if there are none."""
    return list(paths) or [load_settings(os.environ, warn).local_dir]


def _where(paths: Sequence[str]) -> str:
    return ", ".join(given(paths))
