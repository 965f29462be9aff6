"""``ray-tracing-hooks collect`` and ``states``: fetch span files and task states of a running cluster."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

import click

from ray_tracing_hooks._cli.asking import NO_RAY, answering_cluster, cluster_address, visiting
from ray_tracing_hooks._cli.options import address_option, examples, json_option, timeout_option
from ray_tracing_hooks._cli.screen import SafeError, progress, warn
from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._insight.analysis.wording import count, size
from ray_tracing_hooks._insight.store.targets import Target, TargetError, target_of
from ray_tracing_hooks._ops.collect import Collected, Source, SourceError, here, of_node
from ray_tracing_hooks._ops.collect import collect as fetch
from ray_tracing_hooks._ops.head import NoClusterError, NoRayError
from ray_tracing_hooks._ops.sources import is_session
from ray_tracing_hooks._ray.states import StatesAnswer, ask, keep
from ray_tracing_hooks._safety.guard import safe
from ray_tracing_hooks._settings.table import load
from ray_tracing_hooks._settings.values import STORE


@click.command(
    epilog=examples(
        "ray-tracing-hooks collect --output spans",
        "ray-tracing-hooks collect --address 10.0.0.1:6379 --output s3://bucket/spans",
        "ray-tracing-hooks collect --output parquet:s3://bucket/runs",
        "ray-tracing-hooks collect /tmp/ray/session_latest --output spans",
    ),
)
@click.argument("sessions", metavar="[SESSION_DIR]...", nargs=-1, type=click.Path())
@click.option(
    "-o",
    "--output",
    metavar="DIR|URL",
    help="The folder to write, or a URL for fsspec, such as s3://bucket/spans; after parquet: a store of runs. By "
    "default it is RAY_TRACING_COLLECT_TO, else spans-SESSION.",
)
@click.option("--all", "everything", is_flag=True, help="Also fetch files of earlier sessions.")
@address_option
@timeout_option(default=60)
@json_option
@click.pass_context
def collect(
    context: click.Context,
    sessions: tuple[str, ...],
    output: str | None,
    everything: bool,
    address: str | None,
    timeout: float,
    in_json: bool,
) -> None:
    """Fetch the span files of all nodes of a running cluster, and the spans left in spools, into one place.

    These are the files of the local exporter: spans, log records, metrics and task states of this session. Shippers
    first write the spans that they still have. Files come through Ray, so nodes need no access to the target. Run the
    command again to fetch only files that are new or have grown. A store gets their runs instead of the files, as from
    export --format parquet.

    After the end of a cluster, name its session folder: the spans left in its spools on this machine are written to
    files and collected. The exit code is 1 if not all could be collected.
    """
    if sessions and address:
        raise click.UsageError("give either session folders or --address")
    folders = [_session(session) for session in sessions]
    options = {"everything": everything, "timeout": timeout}
    try:
        with ExitStack() as until_end, _sources(folders, address, timeout) as (found, session):
            place = output or load(os.environ, warn).collect_to or f"spans-{session}"
            is_store = place.startswith(STORE)
            if is_store:
                from ray_tracing_hooks._cli.keeping import check  # noqa: PLC0415  as in `_keep`

                check(place.removeprefix(STORE), "--output")
            folder = until_end.enter_context(tempfile.TemporaryDirectory()) if is_store else place
            target = _target(folder)
            with progress(shown=not in_json, is_size=True) as advance:
                result = fetch(found, options, target, advance)
            for problem in result.problems if not in_json else ():
                warn(problem)
            kept = _keep(folder, place.removeprefix(STORE)) if is_store else []
    except TargetError as error:
        raise SafeError(str(error)) from None
    if in_json:
        from ray_tracing_hooks._insight.ingest.sources import shown  # noqa: PLC0415  as in `_keep`

        about = {"output": shown(place) if is_store else target.text, "sources": len(found)}
        click.echo(json.dumps({**about, **asdict(result), **({"runs": [each["id"] for each in kept]} if kept else {})}))
    else:
        _sum_up(result, target, len(found), are_nodes=not folders, is_store=is_store)
        if kept:
            from ray_tracing_hooks._cli.keeping import written_text  # noqa: PLC0415  as in `_keep`

            click.echo(written_text(place.removeprefix(STORE), kept))
    if result.problems:
        context.exit(1)


def _session(folder: str) -> str:
    """The session folder of Ray that is named. Any other path ends the command with exit code 1."""
    path = os.path.realpath(folder)
    if not is_session(path):
        raise SafeError(f"{folder!r} is no session folder of Ray: expected one such as /tmp/ray/session_latest")
    return path


@contextmanager
def _sources(folders: Sequence[str], address: str | None, timeout: float) -> Iterator[tuple[list[Source], str]]:
    """The machines to collect from, and the name of their session."""
    if folders:
        yield [here(folder) for folder in folders], os.path.basename(folders[0])
        return
    found = answering_cluster(address, ", or the session folder of one that has ended")
    try:
        with visiting(found) as visit:
            nodes = [of_node(visit, node, timeout) for node in visit.nodes]
            yield nodes, os.path.basename(str(nodes[0].place()["session_dir"]))
    except SourceError as error:
        raise SafeError(f"the connection to {found} fails: {error}") from None


def _target(place: str) -> Target:
    try:
        return target_of(place, lambda: warn(f"another run writes to {place}: waiting for its end", "note"))
    except TargetError as error:
        raise click.BadParameter(safe(str(error)), param_hint="--output") from None


def _keep(folder: str, place: str) -> list[dict[str, Any]]:
    """Write the runs of collected files to a store, if there are spans among them."""
    # The analysis takes long to import, and files are collected without it.
    from ray_tracing_hooks._cli import inputs  # noqa: PLC0415
    from ray_tracing_hooks._cli.keeping import keep  # noqa: PLC0415
    from ray_tracing_hooks._insight.ingest.files import span_files  # noqa: PLC0415

    if not span_files([folder], with_subfolders=True):
        return []
    which = inputs.Which(everything=True)
    return keep(place, which.table([folder]), which.folders)


def _sum_up(result: Collected, target: Target, sources: int, *, are_nodes: bool, is_store: bool) -> None:
    what = count(sources, "node") if are_nodes else count(sources, "session")
    fetched = f"{size(result.fetched_bytes)} fetched now" if result.fetched_bytes else "nothing new"
    where = "" if is_store else f" in {safe(target.text)}"
    click.echo(f"{count(result.files, 'file')}, {size(result.bytes)} of {what}{where}; {fetched}")
    if result.files and not is_store and "://" not in target.text:
        click.echo(f"next: ray-tracing-hooks summary {shlex.quote(safe(target.text))}")


_NONE = (
    "it has run no tasks, RAY_task_events is off, or they are not reported to the GCS "
    "(RAY_enable_core_worker_task_event_to_gcs=0) and its dashboard has none or does not answer. Give the place where "
    "KubeRay's History Server keeps its events with --events"
)
_NONE_OF_DASHBOARD = (
    "the GCS has none, and its dashboard, which keeps them (RAY_enable_task_events_to_dashboard_head=1), has none "
    "either. It has run no tasks, or they are not reported yet: run the command again in some seconds"
)


# --- States of tasks -----------------------------------------------------------------------------------------------


@click.command(
    epilog=examples(
        "ray-tracing-hooks states",
        "ray-tracing-hooks states /tmp/spans --address 10.0.0.1:6379",
        "ray-tracing-hooks states spans --events s3://ray-historyserver/cluster-history",
    ),
)
@click.argument("folder", metavar="[DIR]", required=False)
@click.option(
    "--events",
    metavar="PATH",
    help="Read them from the job events of KubeRay's History Server instead, below this folder or a URL for fsspec, "
    "such as s3://bucket/cluster-history.",
)
@address_option
@timeout_option()
@json_option
def states(folder: str | None, events: str | None, address: str | None, timeout: float, in_json: bool) -> None:
    """Fetch the times at which tasks entered each state, for summary and view.

    They are written to task-states-SESSION.ndjson in DIR, by default RAY_TRACING_LOCAL_DIR, /tmp/spans. With this file,
    summary and view show the causes of queue time: arguments, resources and workers, fetching, or the actor. Ray keeps
    the states while the cluster runs, by default for the last 100,000 attempts. Run the command again later to add to
    the file. Ray must be installed here.

    After the end of a cluster, --events reads what KubeRay's History Server has kept of it, and needs no Ray. It writes
    a file for each session there.
    """
    if events is not None and address is not None:
        raise click.UsageError("give either --events or --address")
    if events == "":
        raise click.UsageError("--events is empty: give a folder or a URL")
    folder = folder or load(os.environ, warn).in_session().local_dir
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise SafeError(f"{folder!r} is not a folder: name one for the task states")
    if events is None:
        _of_cluster(folder, _address(address), timeout, in_json=in_json)
    else:
        _of_events(folder, events, in_json=in_json)


def _of_cluster(folder: str, address: str, timeout: float, *, in_json: bool) -> None:
    answer = _ask(address, timeout)
    if not _write(folder, answer, in_json=in_json):
        why = _NONE_OF_DASHBOARD if answer.is_of_dashboard else _NONE
        raise SafeError(f"the cluster at {address} has no task states: {why}")
    if answer.dropped:
        warn(f"Ray has dropped {count(answer.dropped, 'event')} of tasks: what these waited for is unknown", "note")


def _of_events(folder: str, place: str, *, in_json: bool) -> None:
    # The analysis takes long to import, and most states are fetched without it.
    from ray_tracing_hooks._cli.inputs import errors  # noqa: PLC0415
    from ray_tracing_hooks._insight.ingest.job_events import sessions_of  # noqa: PLC0415
    from ray_tracing_hooks._insight.ingest.sources import shown  # noqa: PLC0415

    missing, written = 0, False
    with errors():
        for session, undefined, attempts in sessions_of(place, warn):
            missing += undefined
            written |= _write(folder, StatesAnswer(session, undefined, iter(attempts)), in_json=in_json)
    if missing:
        warn(f"the definitions of {count(missing, 'attempt')} are missing: what these waited for is unknown", "note")
    if not written:
        raise SafeError(
            f"no task states in {shown(place)}: expected files SESSION/NODE/job_events/JOB/*.jsonl.gz of the collector "
            "of KubeRay's History Server, with events of tasks"
        )


def _write(folder: str, answer: StatesAnswer, *, in_json: bool) -> bool:
    """Add an answer to the file of its session, and say so; whether it has states."""
    path = os.path.join(folder, task_states.file_name(answer.session))
    try:
        _, known, fetched = keep(folder, answer)
    except OSError as error:
        raise SafeError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise SafeError(f"{path} is left as it is: {error}. Move it away, or name another folder") from None
    if fetched and in_json:
        about = {"output": path, "attempts": known, "fetched": fetched, "dropped": answer.dropped}
        click.echo(json.dumps(about))
    elif fetched:
        click.echo(f"{safe(path)}: {count(known, 'attempt')} of tasks, {fetched:,} of them fetched now")
    return bool(fetched)


def _address(given: str | None) -> str:
    """The address of the cluster's head; ends the command with exit code 1 without one."""
    try:
        return cluster_address(given, clients=False)
    except NoRayError as error:
        raise SafeError(f"{NO_RAY}: {error}") from None
    except NoClusterError as error:
        raise SafeError(f"{error}: give the address of its head with --address HOST:PORT, or in RAY_ADDRESS") from None


def _ask(address: str, timeout: float) -> StatesAnswer:
    """The answer of the cluster; exit code 1 without one."""
    import grpc  # noqa: PLC0415

    try:
        return ask(address, timeout)
    except grpc.RpcError as error:
        code = error.code()
        if code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}:
            why = "it requires the token that it was started with (RAY_AUTH_TOKEN)"
        else:
            why = f"is this the address of a running head, and can it be reached from here? ({code.name})"
        raise SafeError(f"no answer from a Ray cluster at {address}: {why}") from None
