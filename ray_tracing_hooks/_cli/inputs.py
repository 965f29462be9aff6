"""Finds and reads spans, for the commands that show them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import click
import numpy as np

from ray_tracing_hooks._cli.screen import SafeError, counted, progress, warn
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.data_quality import unread
from ray_tracing_hooks._insight.analysis.queues import states_beside
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.ingest import utilization
from ray_tracing_hooks._insight.ingest.files import folders_of, span_files
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.runs import part_of, runs, sessions
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._settings.table import load as load_settings

_Read = TypeVar("_Read")

LONG_BYTES = 32 * 1024 * 1024
"""From this size on, a progress bar is shown while reading."""

_SHOWN_TRACES = 3
"""How many ids are listed if the beginning of an id is that of several."""

_HOW_TO_RECORD = (
    "To record some, run a program with `ray-tracing-hooks run program.py`, or with "
    'ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup"); or name the folder that contains them.'
)


def table(paths: Sequence[str]) -> Table:
    """The spans of :func:`files` as a table. Ends the command with exit code 1 if there are none."""
    found = files(paths)
    read = with_progress(found, load)
    if not len(read):
        raise SafeError(no_spans(paths, read.quality))
    return read


def chosen(paths: Sequence[str], which: Which) -> tuple[Analysis, int]:
    """The spans of ``which`` below ``paths``, as :func:`analysed`; and the number of runs."""
    part, number = which.of(table(paths))
    return analysed(part, paths), number


def analysed(table: Table, paths: Sequence[str]) -> Analysis:
    """The analysis of a table with clocks corrected, and with the task states and samples beside spans of ``paths``."""
    folders = folders_of(given(paths))
    states = states_beside(folders, table.ids, sessions(table))
    samples, unreadable = utilization.samples_beside(folders, table.start[0], table.now_ns)
    for problem in (*states.problems, *unreadable):
        warn(problem)
    return Analysis.corrected(table, states, samples)


class Which:
    """The spans that the options of a command choose: a trace, the newest run of a job, all runs, or the newest run.

    Ends the command with exit code 2 if the options contradict each other, or if this cannot be the beginning of a
    trace id.
    """

    def __init__(self, trace_id: str | None = None, job: str | None = None, *, everything: bool = False) -> None:
        options = {"--trace": trace_id is not None, "--job": job is not None, "--all": everything}
        if len(given := [option for option, is_given in options.items() if is_given]) > 1:
            raise click.UsageError(f"{' and '.join(given)} choose different spans: give one of them")
        if trace_id is not None and not re.fullmatch("[0-9a-fA-F]{1,32}", trace_id):
            raise click.BadParameter(
                f"{trace_id!r} is not a trace id: expected up to 32 hex digits", param_hint="--trace"
            )
        self._trace_id, self._job, self._everything = trace_id, job, everything

    def of(self, table: Table) -> tuple[Table, int]:
        """These spans, and the number of runs of which theirs is the newest. Ends the command with exit code 1 if there
        are none.
        """
        if self._everything:
            return table, 1
        if self._trace_id is not None:
            wanted = table.traces.index(the_trace(table.traces, self._trace_id))
            return table.part(row for row, trace in enumerate(table.trace) if trace == wanted), 1
        found = runs(table)
        if self._job is None:
            return part_of(table, found[0]), len(found)
        of_job = [run for run in found if run.job.startswith(self._job.lower())]
        if not of_job:
            raise SafeError(
                f"none of {count(len(found), 'run')} is of a job that starts with {self._job!r} (--job): "
                f"the newest is of job {found[0].job}"
            )
        return part_of(table, of_job[0]), 1


def between(table: Table, begin: int | None, end: int | None) -> Table:
    """The spans that ran between two times, with their ancestors.

    The times are nanoseconds from the first span on, None for its start and for the end. Ends the command with exit
    code 1 if no span ran then.
    """
    if begin is None and end is None:
        return table
    start, ends = (as_numpy(column) - table.start[0] for column in (table.start, table.ends))
    first, last = begin or 0, end if end is not None else int(ends.max())
    rows = np.nonzero((start < max(last, 1)) & (ends >= first))[0].tolist()
    if not rows:
        raise SafeError(f"no span ran then (--from, --to): the spans that are chosen cover {duration(int(ends.max()))}")
    wanted = dict.fromkeys(rows)
    for row in rows:
        while (row := table.parent[row]) >= 0 and row not in wanted:
            wanted[row] = None
    return table.part(wanted)


def the_trace(traces: Sequence[str], beginning: str) -> str:
    """The one of these trace ids that starts with this. Ends the command with exit code 1 if none does, or several."""
    fits = sorted(trace for trace in traces if trace.startswith(beginning.lower()))
    if not fits:
        raise SafeError(f"none of {count(len(traces), 'trace')} starts with {beginning!r} (--trace)")
    if len(fits) > 1:
        some = ", ".join(fits[:_SHOWN_TRACES]) + (", ..." if len(fits) > _SHOWN_TRACES else "")
        raise SafeError(f"{len(fits):,} traces start with {beginning!r} (--trace): {some}; give more digits of one")
    return fits[0]


def files(paths: Sequence[str]) -> list[str]:
    """The files with spans below ``paths``, or in the configured local folder if there are none; at least one.

    Ends the command with exit code 1 if there are no such files, or a path cannot be read.
    """
    try:
        found = span_files(given(paths), with_subfolders=True)
    except FileNotFoundError as error:
        if not paths:
            raise SafeError(f"no spans yet: the folder {_where(paths)} does not exist. {_HOW_TO_RECORD}") from None
        raise SafeError(f"{error.filename!r} does not exist: expected a folder or a file of spans") from None
    except OSError as error:
        raise SafeError(f"{error.filename!r} cannot be read: {error.strerror}") from None
    if not found:
        raise SafeError(f"no spans in {_where(paths)}: it contains no *.jsonl, *.jsonl.gz or *.spool. {_HOW_TO_RECORD}")
    return found


def no_spans(paths: Sequence[str], quality: Quality) -> str:
    """The message for files without spans."""
    first = f" {problems[:1].upper()}{problems[1:]}." if (problems := unread(quality)) else ""
    return f"no spans in the files of {_where(paths)}.{first} {_HOW_TO_RECORD}"


def size_of(files: Sequence[str]) -> int:
    """The bytes of these files together; some may be gone."""
    return sum(os.path.getsize(file) for file in files if os.path.exists(file))


def with_progress(found: Sequence[str], read: Callable[[Sequence[str], Callable[[int], None]], _Read]) -> _Read:
    """The result of ``read`` for the files, with a progress bar if they are large and there is a terminal."""
    size = size_of(found)
    if size < LONG_BYTES:
        return read(found, lambda _count: None)
    with progress(is_size=True) as advance:
        return read(found, counted(advance, "reading spans", size))


def given(paths: Sequence[str]) -> list[str]:
    """The paths, or the configured local folder if there are none."""
    return list(paths) or [load_settings(os.environ, warn).local_dir]


def _where(paths: Sequence[str]) -> str:
    return ", ".join(given(paths))
