"""``ray-tracing-hooks disable``: records nothing on a running cluster until ``enable``."""

from __future__ import annotations

import time

import click

from ray_tracing_hooks._cli import changing
from ray_tracing_hooks._cli.text import examples, parse_duration
from ray_tracing_hooks._ops.control import Change

_MOST_NS = 10**18
"""About 30 years."""


@click.command(
    short_help="Record nothing on a running cluster, until it is enabled.",
    epilog=examples(
        "ray-tracing-hooks disable",
        "ray-tracing-hooks disable --for 1h",
        "ray-tracing-hooks disable --address 10.0.0.1:6379",
    ),
)
@click.option(
    "--for",
    "duration",
    type=parse_duration,
    metavar="DURATION",
    help="Record again after this time, such as 30m or 1h, unless another command comes first.",
)
@changing.options
@click.pass_context
def disable(context: click.Context, duration: int | None, address: str | None, timeout: float, as_json_: bool) -> None:
    """Record nothing on a running cluster from now on, also in processes that start later, until `enable`.

    Spans that are open end as usual and are delivered. A hook that `enable --hook` has set is removed again.

    With --for, each process records again by itself once that time is over, as after `enable`, and such a hook stays.

    Prints how many processes have stopped, and which have not; the exit code is 1 if any have not.
    """
    if duration is not None and not 10**9 <= duration <= _MOST_NS:
        raise click.BadParameter("expected a second or more, such as 30m or 1h", param_hint="--for")
    until = None if duration is None else time.time() + duration / 1e9
    changing.run(context, Change(enabled=False, until=until), address, timeout, as_json_=as_json_)
