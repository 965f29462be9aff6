"""``ray-tracing-hooks view``: recorded spans as one HTML file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, cast

import click

from ray_tracing_hooks._cli import source
from ray_tracing_hooks._cli.text import SafeError, count, warn
from ray_tracing_hooks._escape import safe
from ray_tracing_hooks._insight import page
from ray_tracing_hooks._insight import read as reading

_LONG_SPANS = 20_000
"""From so many spans on, writing their attributes takes long enough for a progress bar."""


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("-o", "--output", metavar="FILE", default="report.html", show_default=True, help="The file to write.")
@click.option("--trace", "trace_id", metavar="ID", help="The trace whose id begins so, instead of the newest run.")
@click.option("--all", "everything", is_flag=True, help="All runs that are there in one page.")
@source.redaction_options
@click.option(
    "--max-spans",
    type=click.IntRange(min=1),
    default=page.MOST_SPANS,
    show_default=True,
    help="Of more spans a sample is drawn; figures are of all.",
)
def view(
    paths: tuple[str, ...],
    output: str,
    trace_id: str | None,
    everything: bool,
    no_attributes: bool,
    redact: tuple[str, ...],
    max_spans: int,
) -> None:
    """Write a run to one HTML file, to open in a browser and to pass on.

    It needs nothing else, and connects to nothing: findings, timeline, flame graph, who calls whom, where it ran, and
    what was open at any time. PATH is as in the other commands; by default the folder of RAY_TRACING_LOCAL_DIR,
    /tmp/spans. Attributes may hold what others should not see: leave them out, or redact some, before the file is
    shared. Only you can read the file.
    """
    if os.path.isdir(output):
        raise click.BadParameter(f"{output!r} is a folder: name a file", param_hint="--output")
    table = source.table(paths)
    analysis, others = (source.analysed(table, paths), 1) if everything else source.chosen(table, trace_id, paths)
    shown = analysis.table
    try:
        with (
            reading.collector_paused(),
            _opened(output) as file,
            _progress(min(len(shown), page.MOST_DETAILS)) as on_spans,
        ):
            drawn = page.write(
                file,
                analysis,
                source=", ".join(map(os.path.basename, paths)) or "spans",
                redaction=page.Redaction(attributes=not no_attributes, redact=redact),
                most_spans=max_spans,
                on_spans=on_spans,
            )
    except OSError as error:
        raise SafeError(f"{output}: {error.strerror or error}") from None
    if drawn < len(shown):
        warn(f"the page draws {drawn:,} of {count(len(shown), 'span')}; its figures are of all", "note")
    if others > 1:
        warn(f"it is the newest of {count(others, 'run')}; --trace ID shows another, --all shows all", "note")
    if not no_attributes:
        warn("the file holds attributes: look at it before it is shared, or use --no-attributes or --redact", "note")
    size = os.path.getsize(output)
    click.echo(f"{safe(output)}: {count(len(shown), 'span')}, {size / 1e6:.1f} MB. Open it in a browser.")


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """A file that nobody else may read, which takes the place of what was there when all of it is written."""
    folder, name = os.path.split(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with cast("BinaryIO", os.fdopen(handle, "wb")) as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def _progress(spans: int) -> Iterator[Callable[[int], None]]:
    if spans < _LONG_SPANS:
        yield lambda _count: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("writing the page", total=spans)
        yield lambda written: progress.advance(task, written)
