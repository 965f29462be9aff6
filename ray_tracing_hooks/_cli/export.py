"""``ray-tracing-hooks export``: writes recorded spans to a file for another viewer."""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import click

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli import output as outputs
from ray_tracing_hooks._cli.options import (
    all_option,
    examples,
    force_option,
    job_option,
    json_option,
    paths_argument,
    redaction_options,
    trace_option,
)
from ray_tracing_hooks._cli.screen import LONG_SPANS, SafeError, counted, progress, warn
from ray_tracing_hooks._insight.analysis.recorded import unread
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.ingest.load import collector_paused
from ray_tracing_hooks._insight.views.exports import FORMATS, writer
from ray_tracing_hooks._insight.views.redaction import Redaction
from ray_tracing_hooks._safety.guard import safe

_PARQUET = "parquet"
_FORMATS_HELP = (
    "; ".join(f"{name}: {each.meaning}" for name, each in FORMATS.items())
    + f"; {_PARQUET}: a store of runs, tables with a row for each span, for pandas, DuckDB, Spark and others"
)


@click.command(
    epilog=examples(
        "ray-tracing-hooks export --format perfetto",
        "ray-tracing-hooks export /tmp/spans --all --format parquet --output runs",
    ),
)
@paths_argument
@click.option(
    "--format", "format_name", type=click.Choice([*FORMATS, _PARQUET]), required=True, help=f"{_FORMATS_HELP}."
)
@click.option(
    "-o",
    "--output",
    metavar="FILE|STORE",
    help="The file to write, compressed if its name ends in .gz; - is standard output. "
    "By default it is spans with the suffix of the format, in the current folder. For parquet, the folder of the "
    "store, or a URL for fsspec such as s3://bucket/runs, by default runs; a run that it has is replaced.",
)
@force_option
@trace_option
@job_option
@all_option
@redaction_options
@json_option
def export(
    paths: tuple[str, ...],
    format_name: str,
    output: str | None,
    force: bool,
    trace_id: str | None,
    job: str | None,
    everything: bool,
    no_attributes: bool,
    redact: tuple[str, ...],
    in_json: bool,
) -> None:
    """Write the spans of a run to a file for another viewer. By default, it is the newest run.

    PATH is a folder or a file of spans, or the spool of a running node; by default RAY_TRACING_LOCAL_DIR, /tmp/spans.
    Notes on standard error name data that the format cannot hold. Attributes may contain confidential data: before you
    share the file, check it, or write it with --no-attributes.
    """
    which = inputs.Which(trace_id, job, everything=everything)
    redaction = Redaction(attributes=not no_attributes, redact=redact)
    if format_name == _PARQUET:
        _keep(which, paths, output or "runs", redaction, in_json=in_json)
        return
    output = f"spans{FORMATS[format_name].suffix}" if output is None else output
    if output == "-":
        if in_json:
            raise click.UsageError("--json prints to standard output too: name a file with --output")
        if sys.stdout.isatty():
            raise click.BadParameter("a terminal cannot show this format: name a file", param_hint="--output")
    else:
        outputs.may_replace(output, force=force)
    began = time.monotonic()
    table = which.table(paths)
    redaction.apply(table)
    table, _ = which.of(table)
    try:
        with (
            collector_paused(),
            progress(shown=len(table) >= LONG_SPANS) as advance,
            _opened(output, replace=force) as out,
        ):
            notes = writer(format_name)(table, redaction, out, counted(advance, "writing spans", len(table)))
    except OSError as error:
        raise SafeError(f"{output}: {error.strerror or error}") from None
    for note in notes:
        warn(note, "note")
    if problems := unread(table.quality):
        warn(problems, "note")
    taken = os.path.getsize(output) if output != "-" else 0
    if in_json:
        click.echo(json.dumps({"output": output, "format": format_name, "spans": len(table), "bytes": taken}))
    elif output != "-":
        took = duration((time.monotonic() - began) * 1e9)
        click.echo(f"{safe(output)}: {count(len(table), 'span')}, {_size(taken)}, written in {took}")


def _keep(which: inputs.Which, paths: tuple[str, ...], output: str, redaction: Redaction, *, in_json: bool) -> None:
    # pyarrow is large, and most commands do not need what writes with it.
    from ray_tracing_hooks._cli.keeping import check, keep, written_text  # noqa: PLC0415

    check(output, "--output")  # before the spans are read, which can take minutes
    table = which.table(paths)
    redaction.apply(table)
    table, _ = which.of(table)
    kept = keep(output, table, which.folders, redaction=redaction)
    if problems := unread(table.quality):
        warn(problems, "note")
    if in_json:
        ids = [each["id"] for each in kept]
        click.echo(json.dumps({"output": output, "format": _PARQUET, "spans": len(table), "runs": ids}))
    else:
        click.echo(written_text(output, kept))


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


@contextmanager
def _opened(output: str, *, replace: bool) -> Iterator[BinaryIO]:
    """The file to write to, compressed if its name says so."""
    if output == "-":
        yield sys.stdout.buffer
        return
    with outputs.opened(output, replace=replace) as file:
        if output.endswith(".gz"):
            # Without a name and a time, so that equal spans give equal files.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6) as packed:
                yield cast("BinaryIO", packed)
        else:
            yield file
