"""``ray-tracing-hooks view``: writes recorded spans as one HTML file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli import output as outputs
from ray_tracing_hooks._cli.engines import DUCKDB, MEMORY, engine_errors, engine_option, is_by_duckdb
from ray_tracing_hooks._cli.options import (
    Number,
    all_option,
    examples,
    job_option,
    parse_duration,
    paths_argument,
    redaction_options,
    trace_option,
)
from ray_tracing_hooks._cli.screen import LONG_SPANS, SafeError, counted, progress, warn
from ray_tracing_hooks._cli.summary import stored
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.ingest.kept_runs import KeptRun
from ray_tracing_hooks._insight.ingest.load import collector_paused
from ray_tracing_hooks._insight.store.part import copied, traces_of
from ray_tracing_hooks._insight.views import page
from ray_tracing_hooks._safety.guard import safe

_MOST_OF_PART = 200_000
"""How many spans of a run that DuckDB reads are opened: they are in memory, and take about 0.3 GB."""


@click.command(
    epilog=examples(
        "ray-tracing-hooks view --open",
        "ray-tracing-hooks view /tmp/spans --output run.html --no-attributes",
        "ray-tracing-hooks view --redact 'http.*' --redact ray.arguments",
        "ray-tracing-hooks view --watch /tmp/ray/session_latest/ray_tracing_hooks",
    ),
)
@paths_argument
@click.option("-o", "--output", metavar="FILE", default="report.html", show_default=True, help="The file to write.")
@click.option("--force", is_flag=True, help="Overwrite an existing file that is not a report.")
@trace_option
@job_option
@all_option
@click.option(
    "--from",
    "begin",
    metavar="DURATION",
    type=parse_duration,
    help="Leave out spans that ended before this time from the start.",
)
@click.option(
    "--to",
    "end",
    metavar="DURATION",
    type=parse_duration,
    help="Leave out spans that began after this time from the start.",
)
@click.option("--open", "opens", is_flag=True, help="Open the report in your browser.")
@click.option("--watch", "watches", is_flag=True, help="Keep the report up to date, and serve it to your browser.")
@click.option(
    "--port", metavar="PORT", type=Number(0, 65535), default=0, help="The port of --watch; by default a free one."
)
@redaction_options
@click.option(
    "--max-spans",
    type=Number(1),
    help=f"Draw a sample of this many spans, by default {page.MOST_SPANS:,}; figures cover all spans. Of a run that "
    f"DuckDB reads, open this many, by default {_MOST_OF_PART:,}.",
)
@engine_option
def view(
    paths: tuple[str, ...],
    output: str,
    force: bool,
    trace_id: str | None,
    job: str | None,
    everything: bool,
    begin: int | None,
    end: int | None,
    opens: bool,
    watches: bool,
    port: int,
    no_attributes: bool,
    redact: tuple[str, ...],
    max_spans: int | None,
    engine: str | None,
) -> None:
    """Write the report of a run to one HTML file. By default, it is the newest run.

    The file needs no other files, and makes no connections. It shows findings, a timeline, a flame graph, a call graph,
    the nodes, and the spans that were open at any time. Only you can read it. Attributes may contain confidential data:
    before you share the file, write it with --no-attributes or --redact.

    PATH is a folder or a file of spans, or the spool of a running node; by default RAY_TRACING_LOCAL_DIR, /tmp/spans.

    With --watch, anyone on this machine who has the printed address can see the spans. From another machine, use a
    tunnel, such as ssh -L. Ctrl-C ends the command.
    """
    which = inputs.Which(trace_id, job, everything=everything)
    if begin is not None and end is not None and begin >= end:
        raise click.UsageError("--from is not before --to: nothing would be left")

    def make() -> str:
        """Write the report, and return what to say of it."""
        replace = outputs.may_replace(output, force=force, is_ours=page.is_report)
        redaction = page.Redaction(attributes=not no_attributes, redact=redact)
        files, whole, is_part = which.files(paths), list[Any](), False
        if is_by_duckdb(which.kept, engine):
            most = max_spans or _MOST_OF_PART
            with engine_errors(f"--engine {DUCKDB}"), TemporaryDirectory() as folder:
                file, whole, is_part = _part_of(which.kept, folder, most, trace_id, begin, end, redaction)
                table = which.read([file], paths)
            redaction.apply(table)
            which.of(table)  # ends the command if --job names none
            drawn, others = len(table), which.number
        else:
            table = which.read(files, paths)
            redaction.apply(table)
            table, others = which.of(table)
            table = inputs.between(table, begin, end)
            drawn = max_spans or page.MOST_SPANS
        analysis = inputs.analysed(table, which.folders)
        analysis.is_part = is_part
        where = ", ".join(map(os.path.basename, paths)) or "spans"
        size = write(
            output,
            analysis,
            replace=replace,
            source=where,
            redaction=redaction,
            max_spans=drawn,
            whole=whole,
        )
        if others > 1:
            others_are = f"this is the newest of {count(others, 'run')}; PATH@latest~1 is the one before it"
            warn(f"{others_are}, --all shows all", "note")
        return f"{safe(output)}: {count(len(table), 'span')}, {size / 1e6:.1f} MB"

    if not no_attributes:
        warn("the file contains attributes: check it before you share it, or use --no-attributes or --redact", "note")
    if watches:
        from ray_tracing_hooks._cli.watch import watch  # noqa: PLC0415  other commands need no HTTP

        def begun(address: str) -> None:
            click.echo(f"Serving it at {address} until Ctrl-C")
            if opens:
                opened_in_browser(address)

        watch(lambda: click.echo(make()), inputs.given(paths), output, port, begun)
    else:
        said = make()
        then = "" if opens and opened_in_browser(Path(output).absolute().as_uri()) else " Open it in a browser."
        click.echo(f"{said}.{then}")


def _part_of(
    kept: Sequence[KeptRun],
    folder: str,
    most: int,
    beginning: str | None,
    begin: int | None,
    end: int | None,
    redaction: page.Redaction,
) -> tuple[str, list[Any], bool]:
    """The file of a part of a run that DuckDB reads, what the page says of the whole run, and whether the part is more
    or less than one whole trace. Ends the command with exit code 1 or 2 if there is no such part.
    """
    run, trace, is_timed = kept[0], None, begin is not None or end is not None
    if beginning is not None:
        of_run = {each: run for run in kept for each in traces_of(run, beginning.lower())}
        if not of_run:
            raise SafeError(f"no trace of {count(len(kept), 'run')} starts with {beginning!r} (--trace)")
        trace = inputs.the_trace([*of_run], beginning)
        run = of_run[trace]
    elif len(kept) > 1:
        raise click.UsageError(f"--all needs --engine {MEMORY}, since one of the runs is large: name a run, PATH@RUN")
    part = copied(run, folder, most, trace=trace, begin=begin, end=end)
    if not part.spans:
        of = f" of trace {trace}" if trace else ""
        raise SafeError(f"no span{of} ran then (--from, --to): the run took {duration(run.document['wall_ns'])}")
    if part.spans == run.spans and not run.hidden:
        return part.file, [], False
    which = (
        f"those of trace {trace}" if trace else "",
        "those that ran in the time that was asked for" if is_timed else "",
        "some traces as a whole" if part.is_sample else "",
        "" if part.until_ns is None else f"those that began in the first {duration(part.until_ns)}",
    )
    chosen = ", of these ".join(filter(None, which)) or "all"
    opened = f"The page opens {part.spans:,} of {count(run.spans, 'span')}: {chosen}"
    warn(f"{opened}; --trace, --from and --to choose others", "note")
    found = stored.document(run, DUCKDB, None)
    if redaction.hides_names:
        # The name that a call was given is quoted in what its function is called.
        for member, key in (("functions", "function"), ("findings", "title")):
            found[member] = [each for each in found[member] if '"' not in each[key]]
    hidden = f" {inputs.lacks(run.hidden)}." if run.hidden else ""
    section = f"{opened}. This section is about the whole run, and everything else about these.{hidden}"
    whole = [section, *stored.parts(found)]
    shown = [each if isinstance(each, str) else each._asdict() for each in whole if each]
    return part.file, shown, trace is None or part.until_ns is not None or is_timed or bool(run.hidden)


def write(
    output: str,
    analysis: Analysis,
    *,
    replace: bool,
    source: str,
    redaction: page.Redaction | None = None,
    max_spans: int = page.MOST_SPANS,
    comparison: dict[str, Any] | None = None,
    whole: Sequence[Any] = (),
) -> int:
    """Write the report of a run to a file, and return its size. Ends the command with 1 on failure."""
    spans = len(analysis.table)
    try:
        with (
            collector_paused(),
            outputs.opened(output, replace=replace) as file,
            progress(shown=spans >= LONG_SPANS) as advance,
        ):
            drawn = page.write(
                file,
                analysis,
                source=source,
                redaction=redaction,
                most_spans=max_spans,
                trace_url=inputs.trace_url(),
                comparison=comparison,
                whole=whole,
                on_spans=counted(advance, "writing the report", min(spans, page.MOST_DETAILS)),
            )
        size = os.path.getsize(output)
    except OSError as error:
        raise SafeError(f"{output}: {error.strerror or error}") from None
    if drawn < spans:
        warn(f"the report draws {drawn:,} of {count(spans, 'span')}; its figures cover all spans", "note")
    return size


def opened_in_browser(address: str) -> bool:
    """Open an address in the user's browser; if there is none, print a note."""
    import webbrowser  # noqa: PLC0415  only with --open

    # Without a display, `webbrowser` starts a text browser, which cannot show the page and takes over the terminal.
    has_display = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if (has_display or sys.platform == "darwin") and webbrowser.open(address):
        return True
    warn("no browser was found: copy the report to a machine with one, or set BROWSER", "note")
    return False
