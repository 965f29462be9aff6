"""``ray-tracing-hooks collect``: fetches the span files of all nodes, and what is left in spools, into one place."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from ray_tracing_hooks._cli.asking import address_option, answering_cluster, visiting
from ray_tracing_hooks._cli.screen import progress
from ray_tracing_hooks._cli.text import SafeError, Seconds, count, examples, warn
from ray_tracing_hooks._insight.analysis.wording import size
from ray_tracing_hooks._ops.collect import Collected, Here, OfNode, Source, SourceError, Target, TargetError, target_of
from ray_tracing_hooks._ops.collect import collect as fetch
from ray_tracing_hooks._ops.sources import is_session
from ray_tracing_hooks._safety.guard import safe
from ray_tracing_hooks._settings.table import load


@click.command(
    short_help="Fetch the span files of all nodes into one folder.",
    epilog=examples(
        "ray-tracing-hooks collect --output spans",
        "ray-tracing-hooks collect --address 10.0.0.1:6379 --output s3://bucket/spans",
        "ray-tracing-hooks collect /tmp/ray/session_latest --output spans",
    ),
)
@click.argument("sessions", metavar="[SESSION_DIR]...", nargs=-1, type=click.Path(exists=True, file_okay=False))
@click.option(
    "--output",
    metavar="DIR|URL",
    help="Where files go: a folder, or a URL for fsspec, such as s3://bucket/spans; by default "
    "RAY_TRACING_COLLECT_TO, else spans-SESSION.",
)
@address_option
@click.option("--everything", is_flag=True, help="Files of other sessions in the same folders too.")
@click.option(
    "--timeout",
    type=Seconds(least=1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long each step on a node may take.",
)
@click.pass_context
def collect(
    context: click.Context,
    sessions: tuple[str, ...],
    output: str | None,
    address: str | None,
    everything: bool,
    timeout: float,
) -> None:
    """Fetch the span files of all nodes of a running cluster, and what is left in spools, into one place.

    These are the files of the local exporter: spans, log records, metrics and task states of this session. Spans that
    shippers still have are written first. They come through Ray, so nodes need no access to the target. Run it again to
    fetch only files that are new or have grown.

    After the end of a cluster, name its session folder: what is left in its spools on this machine is written to files,
    and these are collected. The exit code is 1 if not all could be collected.
    """
    if sessions and address:
        raise click.UsageError("give either session folders or --address")
    folders = [_session(session) for session in sessions]
    options = {"everything": everything, "timeout": timeout}
    try:
        with _sources(folders, address, timeout) as (found, session):
            target = _target(output or load(os.environ, warn).collect_to or f"spans-{session}")
            with progress(is_size=True) as advance:
                result = fetch(found, options, target, advance)
    except TargetError as error:
        raise SafeError(str(error)) from None
    _sum_up(result, target, len(found), are_nodes=not folders)
    if result.problems:
        context.exit(1)


def _session(folder: str) -> str:
    """The session folder of Ray that is named. Any other folder ends the command with exit code 2."""
    path = os.path.realpath(folder)
    if not is_session(path):
        raise click.BadParameter(
            f"{folder!r} is no session folder of Ray, such as /tmp/ray/session_latest", param_hint="SESSION_DIR"
        )
    return path


@contextmanager
def _sources(folders: Sequence[str], address: str | None, timeout: float) -> Iterator[tuple[list[Source], str]]:
    """The machines to collect from, and the name of their session."""
    if folders:
        yield [Here(folder) for folder in folders], os.path.basename(folders[0])
        return
    found = answering_cluster(address, ", or the session folder of one that has ended")
    try:
        with visiting(found) as visit:
            nodes: list[Source] = [OfNode(visit, node, timeout) for node in visit.nodes]
            yield nodes, os.path.basename(str(nodes[0].place()["session_dir"]))
    except SourceError as error:
        raise SafeError(f"the connection to {found} fails: {error}") from None


def _target(place: str) -> Target:
    try:
        return target_of(place, lambda: warn(f"another run writes to {place}: waiting for its end", "note"))
    except TargetError as error:
        raise click.BadParameter(safe(str(error)), param_hint="--output") from None


def _sum_up(result: Collected, target: Target, sources: int, *, are_nodes: bool) -> None:
    for problem in result.problems:
        warn(problem)
    what = count(sources, "node") if are_nodes else count(sources, "session")
    fetched = f"{size(result.fetched_bytes)} fetched now" if result.fetched_bytes else "nothing new"
    click.echo(f"{count(result.files, 'file')}, {size(result.bytes)} of {what} in {safe(target.text)}; {fetched}")
    if result.files and "://" not in target.text:
        click.echo(f"next: ray-tracing-hooks summary {shlex.quote(safe(target.text))}")
