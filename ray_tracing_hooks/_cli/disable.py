"""``ray-tracing-hooks disable``: records nothing on a running cluster until ``enable``."""

from __future__ import annotations

import click

from ray_tracing_hooks._cli import changing
from ray_tracing_hooks._cli.text import examples
from ray_tracing_hooks._ops.control import Change


@click.command(
    short_help="Record nothing on a running cluster, until it is enabled.",
    epilog=examples("ray-tracing-hooks disable", "ray-tracing-hooks disable --address 10.0.0.1:6379"),
)
@changing.options
@click.pass_context
def disable(context: click.Context, address: str | None, timeout: float, as_json_: bool) -> None:
    """Record nothing on a running cluster from now on, also in processes that start later, until `enable`.

    Spans that are open end as usual and are delivered. A hook that `enable --hook` has set is removed again.

    Prints how many processes have stopped, and which have not; the exit code is 1 if any have not.
    """
    changing.run(context, Change(enabled=False), address, timeout, as_json_=as_json_)
