"""``ray-tracing-hooks configure``: changes settings of a running cluster."""

from __future__ import annotations

import click

from ray_tracing_hooks._cli import changing
from ray_tracing_hooks._cli.text import examples
from ray_tracing_hooks._ops.control import Change


@click.command(
    short_help="Change settings of a running cluster, without a restart.",
    epilog=examples(
        "ray-tracing-hooks configure OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.1",
        "ray-tracing-hooks configure exclude='Poller.*' rate_limit=100",
        "ray-tracing-hooks configure OTEL_EXPORTER_OTLP_HEADERS    # its value in this shell",
        "ray-tracing-hooks configure --unset exclude",
    ),
)
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--unset", metavar="NAME", multiple=True, help="Back to what each process was started with.")
@click.option(
    "--reset",
    is_flag=True,
    help="Undo all changes, including enable and disable; settings that are also given are applied after that.",
)
@changing.options
@click.pass_context
def configure(
    context: click.Context,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    reset: bool,
    address: str | None,
    timeout: float,
    as_json_: bool,
) -> None:
    """Change settings in all processes of a running cluster, and in those that start later.

    NAME is a variable, such as RAY_TRACING_EXCLUDE or OTEL_TRACES_SAMPLER, or the name of a setting as in the YAML
    file, such as exclude. Without a value it has the one of this shell. What is set takes precedence over the variables
    of each process. Samplers, filters, rate limits, exporters and their addresses can be changed; other settings are
    refused.

    Prints how many processes have applied the change, and which have not; the exit code is 1 if any have not, and 2
    for wrong usage.
    """
    variables = changing.given(settings, unset)
    if not variables and not reset:
        raise click.UsageError("nothing to change: give NAME=VALUE, --unset NAME or --reset")
    changing.run(context, Change(variables=variables, reset=reset), address, timeout, as_json_=as_json_)
