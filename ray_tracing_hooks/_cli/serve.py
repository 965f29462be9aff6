"""``ray-tracing-hooks serve``: serves the page of ``view`` locally."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli.text import SafeError, examples
from ray_tracing_hooks._escape import safe
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.views import page

if TYPE_CHECKING:
    from ray_tracing_hooks._insight.views.server import Made, Make


@click.command(
    short_help="Serve the page, and keep it up to date.",
    epilog=examples(
        "ray-tracing-hooks serve",
        "ray-tracing-hooks serve /tmp/ray/session_latest/ray_tracing_hooks --port 8123",
    ),
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path())
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port to listen on; by default a free one.")
@click.option(
    "--trace", "trace_id", metavar="ID", help="The trace whose id starts with this, instead of the newest run."
)
@click.option("--all", "everything", is_flag=True, help="All runs in one page.")
@click.option(
    "--max-spans",
    type=click.IntRange(min=1),
    default=page.MOST_SPANS,
    show_default=True,
    help="With more spans, the page loads what it shows from the server, which uses an index on disk.",
)
def serve(paths: tuple[str, ...], port: int, trace_id: str | None, everything: bool, max_spans: int) -> None:
    """Serve the page of `view` on this machine, and keep it up to date.

    PATH is a folder with *.jsonl files of OTLP-JSON, one such file, or the spool of a running node, which shows what is
    running now; by default the folder of RAY_TRACING_LOCAL_DIR, /tmp/spans. The address contains a random token: anyone
    who has it can see the spans. The server accepts connections from this machine only; from another one, use a tunnel
    such as ssh -L. Ctrl-C ends it.
    """
    from ray_tracing_hooks._cli import serving  # noqa: PLC0415  other commands need no HTTP
    from ray_tracing_hooks._insight.views import server  # noqa: PLC0415

    inputs.check_choice(trace_id, everything=everything)
    if trace_id is not None:
        inputs.check_trace_id(trace_id)
    inputs.files(paths)
    given = inputs.given(paths)
    where = ", ".join(given)
    maker = serving.Maker(serving.Asked(given, trace_id, everything, max_spans))
    ended = threading.Event()
    refused: list[str] = []

    def refuse(why: str) -> None:
        refused.append(why)
        ended.set()

    make = _shown(_or_refused(maker.make, refuse))
    reports = server.Reports(lambda: span_files(given, with_subfolders=True), make)
    try:
        listening = server.Server(reports, port)
    except OSError as error:
        raise SafeError(f"cannot listen on {server.ADDRESS}:{port}: {error.strerror}") from None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    with listening:
        thread = threading.Thread(target=listening.serve_forever, name="ray-tracing-hooks server")
        thread.start()
        reports.start()
        click.echo(f"Serving {safe(where)} at {listening.address} until Ctrl-C")
        ended.wait()
        listening.shutdown()
        thread.join()
        maker.end()
        reports.end()
    if refused:
        raise click.BadParameter(refused[0], param_hint="--trace")


def _or_refused(make: Make, refuse: Callable[[str], None]) -> Make:
    """The same; calls ``refuse`` with the reason if the spans that are there at first show that the choice is wrong.

    Later, when others have come, the reason is shown in the page as any other problem.
    """
    from ray_tracing_hooks._cli.serving import WrongChoiceError  # noqa: PLC0415  as above

    is_first = True

    def made(folder: str, tell: Callable[[str], None]) -> Made:
        nonlocal is_first
        try:
            found = make(folder, tell)
        except WrongChoiceError as error:
            if is_first:
                refuse(str(error))
            raise
        is_first = False
        return found

    return made


def _shown(make: Make) -> Make:
    """The same, with its progress shown on a terminal."""

    def shown(folder: str, tell: Callable[[str], None]) -> Made:
        is_terminal = sys.stderr.isatty()

        def report(doing: str) -> None:
            tell(doing)
            if is_terminal:
                click.echo(f"\r\033[K{doing}", err=True, nl=False)

        try:
            return make(folder, report)
        finally:
            if is_terminal:
                click.echo("\r\033[K", err=True, nl=False)

    return shown
