"""``ray-tracing-hooks states``: what a running cluster knows of its tasks and spans do not, in a file beside them."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click

from ray_tracing_hooks._cli import source
from ray_tracing_hooks._cli.text import SafeError, count, warn
from ray_tracing_hooks._escape import safe
from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._formats.task_states import About, Attempt
from ray_tracing_hooks._private import open_file, open_folder


@click.command()
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--address", metavar="HOST:PORT", help="The cluster; by default that of RAY_ADDRESS, or of this machine.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=30.0, help="Seconds to wait for it; default 30.")
def states(folder: str | None, address: str | None, timeout: float) -> None:
    """Fetch from a running cluster when its tasks came into which state, for summary and view.

    They are written to DIR, by default the folder of RAY_TRACING_LOCAL_DIR, /tmp/spans, as task-states-SESSION.ndjson.
    With them summary and view tell what calls waited for before they ran: arguments, resources and workers, fetching,
    or the actor. Ray keeps them while the cluster runs, of the last 100,000 attempts by default. Call it again later to
    add to the file. Ray must be installed here.
    """
    folder = folder or source.given(())[0]
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise click.BadParameter(f"{folder!r} is not a folder", param_hint="DIR")
    address = _address(address)
    session, reply = _ask(address, timeout)
    dropped = reply.num_status_task_events_dropped + reply.num_truncated
    fetched = {(each.task_id, each.attempt): each for each in _attempts(reply)}
    if not fetched:
        raise SafeError(f"the cluster at {address} tells of no tasks: it has run none, or RAY_task_events is off there")
    path = os.path.join(folder, task_states.file_name(session))
    try:
        known = dict(_known(path)) | fetched
        _write(path, About(session, time.time_ns(), dropped), known)
    except OSError as error:
        raise SafeError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise SafeError(f"{path} is left as it is: {error}. Move it away, or name another folder") from None
    if dropped:
        warn(f"Ray has not kept {count(dropped, 'event')} of tasks: what they waited for is not known", "note")
    click.echo(f"{safe(path)}: {count(len(known), 'attempt')} of tasks, {len(fetched):,} of them fetched now")


def _address(given: str | None) -> str:
    """The address of the cluster's head; ends the command with exit code 2 where there is none."""
    try:
        from ray._private import services  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
    except ImportError as error:
        raise click.UsageError(f"Ray is not installed here, and it is what asks a cluster: {error}") from None
    try:
        found = services.canonicalize_bootstrap_address(given)
    except Exception as error:  # noqa: BLE001  it says in many ways that it cannot make anything of it
        raise _wrong(given, f" ({error})") from None
    if found is None:
        raise click.UsageError(
            "no cluster runs here that `ray start` has started: name the address of its head with --address HOST:PORT, "
            "or in RAY_ADDRESS"
        )
    if not re.fullmatch(r"[^/]+:\d+", str(found)):
        raise _wrong(given)
    return str(found)


def _wrong(given: str | None, why: str = "") -> click.BadParameter:
    named = given or os.environ.get("RAY_ADDRESS")
    return click.BadParameter(
        safe(f"{named!r} is no address of a cluster's head: expected HOST:PORT{why}"), param_hint="--address"
    )


def _ask(address: str, timeout: float) -> tuple[str, Any]:
    """The session of the cluster, and its reply with the events; exit code 2 where nobody answers."""
    import grpc  # noqa: PLC0415
    from ray._private import gcs_utils  # noqa: PLC0415
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc  # noqa: PLC0415

    channel = gcs_utils.create_gcs_channel(address)
    try:
        kept = gcs_service_pb2_grpc.InternalKVGcsServiceStub(channel).InternalKVGet(
            gcs_service_pb2.InternalKVGetRequest(namespace=b"session", key=b"session_name"), timeout=timeout
        )
        request = gcs_service_pb2.GetTaskEventsRequest()
        request.filters.exclude_driver = True
        reply = gcs_service_pb2_grpc.TaskInfoGcsServiceStub(channel).GetTaskEvents(request, timeout=timeout)
    except grpc.RpcError as error:
        code = error.code()
        if code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}:
            why = "it wants the token that it was started with (RAY_AUTH_TOKEN)"
        else:
            why = f"is it the address of a head that runs, and can it be reached from here? ({code.name})"
        raise click.UsageError(f"no answer from a Ray cluster at {safe(address)}: {why}") from None
    finally:
        channel.close()
    return kept.value.decode(errors="replace") or "unknown", reply


def _attempts(reply: Any) -> Iterator[Attempt]:
    from ray.core.generated import common_pb2  # noqa: PLC0415

    names, kinds = common_pb2.TaskStatus, common_pb2.TaskType
    known = set(names.values())
    for event in reply.events_by_task:
        times = event.state_updates.state_ts_ns
        if times:
            yield Attempt(
                event.task_id.hex(),
                event.attempt_number,
                event.task_info.name,
                kinds.Name(event.task_info.type),
                event.job_id.hex(),
                {names.Name(state): times[state] for state in sorted(times) if state in known},
            )


def _known(path: str) -> Iterator[tuple[tuple[str, int], Attempt]]:
    """What the file holds already, of which Ray may have let go meanwhile."""
    with suppress(FileNotFoundError):
        for attempt in task_states.read(path)[1]:
            yield (attempt.task_id, attempt.attempt), attempt


def _write(path: str, about: About, known: dict[tuple[str, int], Attempt]) -> None:
    """Replace the file, which nobody else may read, at once."""
    folder, name = os.path.split(path)
    place = open_folder(folder)
    temporary = f".{name}.{secrets.token_hex(4)}"
    try:
        descriptor = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder=place)
        try:
            with open(descriptor, "wb") as file:
                file.writelines(task_states.lines(about, known.values()))
            os.rename(temporary, name, src_dir_fd=place, dst_dir_fd=place)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=place)
            raise
    finally:
        os.close(place)
