"""What computes the figures of runs: this process, or DuckDB for runs of a store that may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli.screen import SafeError
from ray_tracing_hooks._insight.analysis.measured import MeasuredRun
from ray_tracing_hooks._insight.ingest.kept_runs import KeptRun
from ray_tracing_hooks._insight.model.runs import part_of, runs
from ray_tracing_hooks._insight.store.figures import StoredRun
from ray_tracing_hooks._insight.views.redaction import RedactedRun, Redaction

LARGE = 5_000_000
"""From this number of spans on, DuckDB reads a run unless ``--engine`` names another: it takes less memory."""

MEMORY, DUCKDB, RAY = "memory", "duckdb", "ray"

engine_option = click.option(
    "--engine",
    type=click.Choice([MEMORY, DUCKDB]),
    help=f"What reads the runs: by default duckdb if one is of a store and has {LARGE:,} spans or more, or lacks "
    "attributes that the analysis reads, since --redact or --no-attributes hid them.",
)


def is_for_duckdb(run: KeptRun) -> bool:
    """Whether DuckDB reads a run of a store unless ``--engine`` names another: it is large, or was stored without
    attributes that the analysis in memory needs.
    """
    return run.spans >= LARGE or bool(run.hidden)


def is_by_duckdb(kept: Sequence[KeptRun], engine: str | None) -> bool:
    """Whether DuckDB reads these runs of a store. Ends the command with exit code 2 if it cannot: there are none."""
    if engine == DUCKDB and not kept:
        raise click.UsageError(f"--engine {DUCKDB} reads runs of a store: give the path of a store")
    return engine == DUCKDB or (engine is None and any(map(is_for_duckdb, kept)))


def runs_of(
    paths: Sequence[str],
    engine: str | None,
    *,
    everything: bool,
    last: int | None = None,
    redaction: Redaction | None = None,
) -> Sequence[MeasuredRun]:
    """The newest run below these paths or the one that is named, or with ``everything`` all, by start; at most the
    ``last`` ones of them. Of runs in memory, ``redaction`` hides attributes.
    """
    if everything and any(map(inputs.run_of, paths)):
        raise click.UsageError("PATH@RUN names one run, and several are read here: name the place without @RUN")
    which = inputs.Which(everything=everything)
    files = which.files(paths)
    kept = which.kept[:last]
    if is_by_duckdb(kept, engine):
        return [StoredRun(run) for run in reversed(kept)]
    redaction = redaction or Redaction()
    if kept and all(run.is_whole for run in kept):
        parts = [(which.read(run.files, paths), run.id) for run in reversed(kept)]
    else:
        read = which.read(files, paths)
        found = [part_of(read, run) for run in reversed(runs(read)[:last])] if everything else [which.of(read)[0]]
        parts = [(part, "") for part in found]
    for table, _ in parts:
        redaction.apply(table)
    return [RedactedRun(inputs.analysed(table, which.folders), redaction, run) for table, run in parts]


@contextmanager
def engine_errors(what: str, extra: str = "ray-tracing-hooks[insight]") -> Iterator[None]:
    """Ends the command with exit code 1 if ``what`` needs a package that is not installed, or a run cannot be read."""
    try:
        yield
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        raise SafeError(f"{what} needs {package}: pip install '{extra}'") from None
    except OSError as error:
        raise SafeError(f"{what} fails: {error.strerror or error}") from None
