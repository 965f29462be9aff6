"""``ray-tracing-hooks enable``: records spans on a running cluster."""

from __future__ import annotations

import click

from ray_tracing_hooks._cli import changing
from ray_tracing_hooks._cli.text import examples
from ray_tracing_hooks._ops.control import Change
from ray_tracing_hooks._ops.hooks import HOOKS, is_ours


@click.command(
    short_help="Record spans on a running cluster, without a restart.",
    epilog=examples(
        "ray-tracing-hooks enable",
        "ray-tracing-hooks enable exporters=otlp OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317",
        "ray-tracing-hooks enable --hook ray_tracing_hooks:setup",
    ),
)
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1)
@click.option(
    "--hook", metavar="MODULE:NAME", help="On a cluster without a hook: the hook for processes that start from now on."
)
@click.option("--actors", is_flag=True, help="With --hook: run it in actors with a name too, such as those of Serve.")
@changing.options
@click.pass_context
def enable(
    context: click.Context,
    settings: tuple[str, ...],
    hook: str | None,
    actors: bool,
    address: str | None,
    timeout: float,
    as_json_: bool,
) -> None:
    """Record spans on a running cluster from now on: in all its processes, and those that start later.

    Use it after `disable`, or on a cluster that was started with a hook and OTEL_SDK_DISABLED=true. Settings are as for
    `configure`. On a cluster without a hook, --hook sets one, which processes that start from now on run. Those that
    already run are left as they are; with --actors, actors that have a name run the hook now, among them those of
    Serve, each between two of its calls.

    Prints how many processes record spans, and which do not; the exit code is 1 if any do not, and 2 for wrong usage.
    """
    if hook is not None and (not is_ours(hook) or hook not in HOOKS):
        raise click.BadParameter(f"{hook!r} is not one of {', '.join(HOOKS)}", param_hint="--hook")
    if actors and hook is None:
        raise click.UsageError("--actors needs --hook")
    wanted = Change(enabled=True, variables=changing.given(settings), hook=hook, in_actors=actors)
    changing.run(context, wanted, address, timeout, as_json_=as_json_)
