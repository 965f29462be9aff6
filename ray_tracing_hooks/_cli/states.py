"""``ray-tracing-hooks states``: fetches the task states of a running cluster, which spans do not contain."""

from __future__ import annotations

import os

import click

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli.asking import cluster_address
from ray_tracing_hooks._cli.text import SafeError, Seconds, count, examples, warn
from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._ops.head import NoClusterError, NoRayError
from ray_tracing_hooks._ray.states import Answer, ask, keep
from ray_tracing_hooks._safety.guard import safe


@click.command(
    short_help="Fetch task states from a running cluster.",
    epilog=examples(
        "ray-tracing-hooks states",
        "ray-tracing-hooks states /tmp/spans --address 10.0.0.1:6379",
    ),
)
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--address", metavar="HOST:PORT", help="The cluster; by default RAY_ADDRESS, or the one on this machine.")
@click.option("--timeout", type=Seconds(least=0.1), default=30.0, help="Seconds to wait for the cluster; default 30.")
def states(folder: str | None, address: str | None, timeout: float) -> None:
    """Fetch the times at which tasks entered each state, for summary and view.

    They are written to DIR, by default the folder of RAY_TRACING_LOCAL_DIR, /tmp/spans, as task-states-SESSION.ndjson.
    With this file, summary and view show what calls waited for before they ran: arguments, resources and workers,
    fetching, or the actor. Ray keeps the states while the cluster runs, by default of the last 100,000 attempts. Run
    the command again later to add to the file. Ray must be installed here.
    """
    folder = folder or inputs.given(())[0]
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise click.BadParameter(f"{folder!r} is not a folder", param_hint="DIR")
    address = _address(address)
    answer = _ask(address, timeout)
    path = os.path.join(folder, task_states.file_name(answer.session))
    try:
        _, known, fetched = keep(folder, answer)
    except OSError as error:
        raise SafeError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise SafeError(f"{path} is left as it is: {error}. Move it away, or name another folder") from None
    if not fetched:
        raise SafeError(
            f"the cluster at {address} has no task states: it has run no tasks, RAY_task_events is off, or they are "
            "reported to its dashboard alone (RAY_enable_core_worker_task_event_to_gcs=0), which does not answer"
        )
    if answer.dropped:
        warn(f"Ray has dropped {count(answer.dropped, 'event')} of tasks: what these waited for is unknown", "note")
    click.echo(f"{safe(path)}: {count(known, 'attempt')} of tasks, {fetched:,} of them fetched now")


def _address(given: str | None) -> str:
    """The address of the cluster's head; ends the command with exit code 2 without one."""
    try:
        return cluster_address(given, clients=False)
    except NoRayError as error:
        raise click.UsageError(f"this command needs Ray, which is not installed here: {error}") from None
    except NoClusterError as error:
        raise click.UsageError(
            f"{error}: give the address of its head with --address HOST:PORT, or in RAY_ADDRESS"
        ) from None


def _ask(address: str, timeout: float) -> Answer:
    """The answer of the cluster; exit code 2 without one."""
    import grpc  # noqa: PLC0415

    try:
        return ask(address, timeout)
    except grpc.RpcError as error:
        code = error.code()
        if code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}:
            why = "it requires the token that it was started with (RAY_AUTH_TOKEN)"
        else:
            why = f"is this the address of a running head, and can it be reached from here? ({code.name})"
        raise click.UsageError(f"no answer from a Ray cluster at {safe(address)}: {why}") from None
