"""``ray-tracing-hooks states``: what a running cluster knows of its tasks and spans do not, in a file beside them."""

from __future__ import annotations

import os
import re

import click

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli.text import SafeError, count, examples, warn
from ray_tracing_hooks._escape import safe
from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._ray.states import Answer, ask, keep


@click.command(
    short_help="Fetch task states from a running cluster.",
    epilog=examples(
        "ray-tracing-hooks states",
        "ray-tracing-hooks states /tmp/spans --address 10.0.0.1:6379",
    ),
)
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
        raise SafeError(f"the cluster at {address} tells of no tasks: it has run none, or RAY_task_events is off there")
    if answer.dropped:
        warn(f"Ray has not kept {count(answer.dropped, 'event')} of tasks: what they waited for is not known", "note")
    click.echo(f"{safe(path)}: {count(known, 'attempt')} of tasks, {fetched:,} of them fetched now")


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


def _ask(address: str, timeout: float) -> Answer:
    """What the cluster tells; exit code 2 where nobody answers."""
    import grpc  # noqa: PLC0415

    try:
        return ask(address, timeout)
    except grpc.RpcError as error:
        code = error.code()
        if code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}:
            why = "it wants the token that it was started with (RAY_AUTH_TOKEN)"
        else:
            why = f"is it the address of a head that runs, and can it be reached from here? ({code.name})"
        raise click.UsageError(f"no answer from a Ray cluster at {safe(address)}: {why}") from None
