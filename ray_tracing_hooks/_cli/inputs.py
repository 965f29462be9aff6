"""Finds and reads spans, for the commands that show them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import click
import numpy as np

from ray_tracing_hooks._cli.screen import SafeError, counted, progress, warn
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.queues import states_beside
from ray_tracing_hooks._insight.analysis.recorded import unread
from ray_tracing_hooks._insight.analysis.wording import count, duration, listed
from ray_tracing_hooks._insight.ingest import utilization
from ray_tracing_hooks._insight.ingest.backends import AddressError
from ray_tracing_hooks._insight.ingest.files import folders_of, span_files
from ray_tracing_hooks._insight.ingest.kept_runs import KeptRun, kept_runs
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.ingest.sources import PlaceError, complete, local, named, shown
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.runs import part_of, run_id, runs, sessions
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._safety.guard import safe
from ray_tracing_hooks._settings.table import load as load_settings
from ray_tracing_hooks._settings.values import SPAN_ID, TRACE_ID

_Read = TypeVar("_Read")

LONG_BYTES = 32 * 1024 * 1024
"""From this size on, a progress bar is shown while reading."""

_SHOWN_TRACES = 3
"""How many ids are listed if the beginning of an id is that of several."""

_SHOWN_KEYS = 2
"""The same for keys of attributes that were hidden."""

_HOW_TO_RECORD = (
    "To record some, run a program with `ray-tracing-hooks run program.py`, or with "
    'ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup"); or name the folder that contains them.'
)


def chosen(paths: Sequence[str], which: Which) -> tuple[Analysis, int]:
    """The spans of ``which`` below ``paths``, as :func:`analysed`; and the number of runs.

    A path may end in ``@`` and a run of it: :class:`Which` says how.
    """
    part, number = which.of(which.table(paths))
    return analysed(part, which.folders), number


def analysed(table: Table, folders: Sequence[str]) -> Analysis:
    """The analysis of a table with clocks corrected, and with the task states and samples in these folders."""
    states = states_beside(folders, table.ids, sessions(table))
    samples, unreadable = utilization.samples_beside(folders, table.start[0], table.now_ns)
    for problem in (*states.problems, *unreadable):
        warn(named(problem))
    return Analysis.corrected(table, states, samples)


class Which:
    """The spans that a command shows: by its options a trace, the newest run of a job, or all runs; without one the
    newest run, or the one that a path names after an ``@``. That is ``latest``, ``latest~1`` for the one before it and
    so on, or the beginning of a run's id. Of a store, only the runs that can be meant are read.

    Ends the command with exit code 2 if the options contradict each other, or if this cannot be the beginning of a
    trace id.

    Attributes:
        folders: Where the spans are, once their files were found.
        kept: The runs of a store that are read, then.
        number: The number of runs of a store of which that is the newest, then; 1 if it was chosen.
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
        self._run = ""
        self.number = 1
        self.folders: list[str] = []
        self.kept: list[KeptRun] = []

    def table(self, paths: Sequence[str]) -> Table:
        """The spans of :meth:`files` as a table. Ends the command with exit code 1 if there are none."""
        return self.read(self.files(paths), paths)

    def read(self, files: Sequence[str], paths: Sequence[str]) -> Table:
        """The same for files that were found."""
        for run in self.kept:
            if run.hidden and not set(run.files).isdisjoint(files):
                warn(f"run {run.id}: {lacks(run.hidden)}, so its critical path and findings may be wrong in memory")
        read = with_progress(files, load)
        read.quality.problems = [each._replace(file=named(each.file)) for each in read.quality.problems]
        if not len(read):
            raise SafeError(no_spans(paths, read.quality))
        return read

    def files(self, paths: Sequence[str], *, fetches: bool = True) -> list[str]:
        """The files with spans below ``paths``, or in the configured local folder if there are none; at least one. None
        of a store without ``fetches``: only :attr:`kept` is known then, and the rest of a run elsewhere is not fetched.

        Ends the command with exit code 1 if there are no such files, or a path cannot be read.
        """
        wanted = {run for path in paths if (run := run_of(path))}
        if wanted and (len(wanted) > 1 or self._trace_id is not None or self._job is not None or self._everything):
            raise click.UsageError("PATH@RUN names one run: give no other run, and neither --trace, --job nor --all")
        self._run = next(iter(wanted), "")
        places = here(paths)
        kept, problems = kept_runs(places)
        if kept or problems:
            places = self._of_store(kept, list(map(named, problems)), _where(paths))
        if self.kept and not fetches:
            return []
        with errors():
            for place in places:
                complete(place)
        self.folders = folders_of(places)
        return files(places, are_given=bool(paths))

    def _of_store(self, kept: Sequence[KeptRun], problems: Sequence[str], where: str) -> list[str]:
        """The folders of the runs of a store that can be meant."""
        if not kept:
            raise SafeError(f"{problems[0]}")
        for problem in problems:
            warn(problem)
        if self._run:
            wanted = [the_run([run.id for run in kept], self._run, where)]
            self._run = ""
        elif self._trace_id is not None or self._everything:
            wanted = list(range(len(kept)))
        elif self._job is not None:
            jobs = [str((run.document.get("cluster") or {}).get("job") or "") for run in kept]
            wanted = [place for place, job in enumerate(jobs) if job.startswith(self._job.lower())][:1] or [0]
        else:
            wanted, self.number = [0], len(kept)
        self.kept = [kept[place] for place in wanted]
        return [run.folder for run in self.kept]

    def of(self, table: Table) -> tuple[Table, int]:
        """These spans, and the number of runs of which theirs is the newest. Ends the command with exit code 1 if there
        are none.
        """
        if self._everything:
            return table, 1
        if self._trace_id is not None:
            wanted = table.traces.index(the_trace(table.traces, self._trace_id))
            return table.part(row for row, trace in enumerate(table.trace) if trace == wanted), 1
        if len(self.kept) == 1 and self.kept[0].is_whole and self._job is None:
            return table, self.number
        found = runs(table)
        if self._run:
            return part_of(table, found[the_run([run_id(table, run) for run in found], self._run, "this place")]), 1
        if self._job is None:
            return part_of(table, found[0]), max(len(found), self.number)
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


def lacks(hidden: Sequence[str]) -> str:
    """That a run was stored without these attributes."""
    others = len(hidden) - _SHOWN_KEYS
    some = listed([*hidden[:_SHOWN_KEYS], *([count(others, "other")] if others > 0 else [])])
    return f"--redact or --no-attributes hid attributes that the analysis reads ({some})"


_PATH_AND_RUN = re.compile(r".*@(latest(?:~\d+)?|[k-z]{1,10})", re.DOTALL)
_LATEST = re.compile(r"latest(?:~(\d{1,9}))?")


def run_of(path: str) -> str:
    """The run that a path names; empty without one, and for a file or a folder whose name has an ``@``."""
    match = _PATH_AND_RUN.fullmatch(path)
    return match[1] if match and not os.path.lexists(path) else ""


def the_run(ids: Sequence[str], wanted: str, where: str) -> int:
    """The place of the one run that ``wanted`` names; ``ids`` are the newest first. Exit code 1 without it."""
    if match := _LATEST.fullmatch(wanted):
        place = int(match[1] or 0)
        if place >= len(ids):
            raise SafeError(f"there is no run {wanted!r}: {where} has {count(len(ids), 'run')}")
        return place
    fits = [place for place, each in enumerate(ids) if each.startswith(wanted.lower())]
    if len({ids[place] for place in fits}) != 1:  # a run may be in two stores
        some = ", ".join(ids[place] for place in fits[:_SHOWN_TRACES])
        raise SafeError(
            f"{len(fits):,} of {count(len(ids), 'run')} start with {wanted!r}{f' ({some})' if some else ''}: expected "
            f"latest, latest~1, or the beginning of an id that `ray-tracing-hooks runs` lists"
        )
    return fits[0]


def here(paths: Sequence[str]) -> list[str]:
    """The paths of :func:`given` on this machine. Ends the command with exit code 1 if there is nothing to be had."""
    with errors():
        return [local(place, warn) for place in given(paths)]


@contextmanager
def errors() -> Iterator[None]:
    """Ends the command with exit code 1 if there are no spans to be had from elsewhere, and 2 for a wrong address."""
    try:
        yield
    except AddressError as error:
        raise click.UsageError(safe(str(error))) from None
    except PlaceError as error:
        raise SafeError(str(error)) from None
    except OSError as error:
        raise SafeError(f"{named(error.filename or '')}{': ' if error.filename else ''}{error.strerror}") from None


def files(places: Sequence[str], *, are_given: bool) -> list[str]:
    """The files with spans below these paths; at least one. Ends the command with exit code 1 without."""
    try:
        found = span_files(places, with_subfolders=True)
    except FileNotFoundError as error:
        if not are_given:
            raise SafeError(f"no spans yet: the folder {', '.join(places)} does not exist. {_HOW_TO_RECORD}") from None
        raise SafeError(f"{error.filename!r} does not exist: expected a folder or a file of spans") from None
    except OSError as error:
        raise SafeError(f"{named(error.filename)!r} cannot be read: {error.strerror}") from None
    if not found:
        raise SafeError(
            f"no spans in {named(', '.join(places))}: it contains no *.jsonl, *.jsonl.gz, *.parquet or *.spool. "
            f"{_HOW_TO_RECORD}"
        )
    return found


def no_spans(paths: Sequence[str], quality: Quality) -> str:
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


def trace_url() -> str:
    """Where the configured back end shows a trace, with places for its id and that of a span; empty if nowhere."""
    return load_settings(os.environ, warn).trace_url or ""


def linked(url: str, trace_id: str, span_id: str = "") -> str:
    """The address of a trace, given where the back end shows traces."""
    return url.replace(TRACE_ID, trace_id).replace(SPAN_ID, span_id)


def given(paths: Sequence[str]) -> list[str]:
    """The paths without the run that they name, or the configured local folder if there are none."""
    found = [path.removesuffix(f"@{run}") if (run := run_of(path)) else path for path in paths]
    return [path or load_settings(os.environ, warn).in_session().local_dir for path in found or [""]]


def _where(paths: Sequence[str]) -> str:
    return ", ".join(map(shown, given(paths)))
