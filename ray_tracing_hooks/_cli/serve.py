"""``ray-tracing-hooks serve``: the page of ``view`` from a local server."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from typing import BinaryIO

import click

from ray_tracing_hooks._cli import source
from ray_tracing_hooks._cli.text import SafeError
from ray_tracing_hooks._escape import safe
from ray_tracing_hooks._insight import page
from ray_tracing_hooks._insight import read as reading
from ray_tracing_hooks._insight.analysis import Analysis
from ray_tracing_hooks._insight.clocks import correct
from ray_tracing_hooks._insight.table import load


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port to listen on; by default a free one.")
@click.option("--trace", "trace_id", metavar="ID", help="The trace whose id begins so, instead of the newest run.")
@click.option("--all", "everything", is_flag=True, help="All runs that are there in one page.")
@click.option(
    "--max-spans",
    type=click.IntRange(min=1),
    default=page.MOST_SPANS,
    show_default=True,
    help="Of more spans a sample is drawn, and all of a range that is asked for; figures are of all.",
)
def serve(paths: tuple[str, ...], port: int, trace_id: str | None, everything: bool, max_spans: int) -> None:
    """Serve the page of `view` on this machine, and keep it up to date.

    PATH is as in the other commands; by default the folder of RAY_TRACING_LOCAL_DIR, /tmp/spans. With the spool of a
    running cluster it shows what runs now. The address holds a random token: whoever has it can see the spans. Only
    this machine is answered; from another one, use a tunnel such as that of ssh -L. Ctrl-C ends it.
    """
    from ray_tracing_hooks._insight import server  # noqa: PLC0415  other commands need no HTTP

    source.files(paths)
    given = source.given(paths)
    where = ", ".join(given)

    def find() -> Sequence[str]:
        return reading.files(given)

    def analyse(files: Sequence[str]) -> Analysis:
        table = load(files)
        if not len(table):
            raise ValueError("there are files and no spans in them yet")
        try:
            return Analysis(correct(table)) if everything else source.chosen(table, trace_id)[0]
        except click.ClickException as error:
            raise ValueError(error.message) from None

    def write(file: BinaryIO, analysis: Analysis) -> int:
        return page.write(file, analysis, source=where, most_spans=max_spans)

    reports = server.Reports(find, analyse, write)
    try:
        serving = server.Server(reports, port)
    except OSError as error:
        raise SafeError(f"cannot listen on {server.ADDRESS}:{port}: {error.strerror}") from None
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with serving:
        thread = threading.Thread(target=serving.serve_forever, name="ray-tracing-hooks server")
        thread.start()
        reports.start()
        click.echo(f"Serving {safe(where)} at {serving.address} until Ctrl-C")
        ended.wait()
        serving.shutdown()
        thread.join()
