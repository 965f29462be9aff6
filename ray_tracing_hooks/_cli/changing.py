"""``ray-tracing-hooks enable``, ``disable`` and ``configure``: change what is set for a running cluster."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from ray_tracing_hooks._cli.asking import answering_cluster, visiting
from ray_tracing_hooks._cli.options import address_option, examples, json_option, parse_duration, timeout_option
from ray_tracing_hooks._cli.screen import Line, SafeError, aligned, print_lines, progress, until
from ray_tracing_hooks._insight.analysis.wording import count, shortened
from ray_tracing_hooks._ops.change import (
    APPLIED,
    FAILED,
    ControlError,
    Outcome,
    SettingsChange,
    UsageError,
    as_json,
    change,
    names_of,
    shown,
    variables_of,
)
from ray_tracing_hooks._ops.hooks import HOOKS, is_ours
from ray_tracing_hooks._safety.guard import SettingError, safe

_MOST_SHOWN = 20
"""The most processes that are listed; ``--json`` has all."""

_TITLE_WIDTH = 48

_MOST_NS = 10**18
"""About 30 years."""


def given(settings: Sequence[str], unset: Sequence[str] = ()) -> dict[str, str | None]:
    """The variables of arguments; an invalid one ends the command with exit code 2."""
    try:
        removed, added = names_of(unset), variables_of(settings, os.environ)
    except SettingError as error:
        raise click.UsageError(safe(str(error))) from None
    if both := sorted(added.keys() & set(removed)):
        raise click.UsageError(f"{', '.join(both)} cannot be set and unset at once")
    return {**dict.fromkeys(removed), **added}


def run(context: click.Context, wanted: SettingsChange, address: str | None, timeout: float, *, in_json: bool) -> None:
    """Make the change, and show which processes have it. The exit code is 1 if not all of them have."""
    found = answering_cluster(address)
    try:
        with progress(shown=not in_json) as advance:
            advance("connecting", 0, 1)
            with visiting(found) as visit:
                outcome = change(visit, wanted, timeout, advance)
    except UsageError as error:
        raise click.UsageError(safe(str(error))) from None
    except ControlError as error:
        raise SafeError(str(error)) from None
    if in_json:
        click.echo(json.dumps(as_json(found, outcome, shown(outcome.control.variables)), indent=2))
    else:
        print_lines(_lines(found, outcome))
    if not outcome.is_everywhere:
        context.exit(1)


def _lines(address: str, outcome: Outcome) -> Iterator[Any]:
    control = outcome.control
    changed = "settings have changed" if control.variables else "settings are those that Ray was started with"
    state = {True: "tracing is on", False: "tracing is off", None: changed}[control.enabled]
    yield f"Cluster {address}: {state}{until(control.until)} (version {control.version})"
    for name, value in shown(control.variables).items():
        yield f" {name}={value}"
    counts, total = outcome.counts, len(outcome.processes)
    yield ""
    nodes = count(len(outcome.nodes), "node")
    text = f"applied by {counts[APPLIED]:,} of {count(total, 'process', 'processes')} on {nodes}"
    if not total and outcome.is_everywhere:
        text = f"no traced process runs on {nodes}; it applies to those that start later"
    yield Line(f" {text}", {"fg": "green" if outcome.is_everywhere else "yellow"})
    if outcome.is_hook_late and outcome.hook:
        yield f" The hook {outcome.hook} was set while the cluster was running: processes that start from now on run it"
    for name, error in sorted(outcome.actors.items()):
        yield Line(f" {name}: the hook {f'fails: {error}' if error else 'has been run'}", {"dim": not error})
    for node, error in outcome.nodes.items():
        if error:
            yield Line(f" {node.name}: {error}", {"fg": "red"})
    missing = [each for each in outcome.processes if each.state != APPLIED]
    if not missing:
        return
    yield ""
    names = {node.id: node.name for node in outcome.nodes}
    yield from aligned(
        ("NODE", "PROCESS", "", "WHY"),
        [
            (
                names.get(each.node, each.node[:8]),
                str(each.pid),
                shortened(f"{each.kind} {each.title}".strip(), _TITLE_WIDTH),
                _why(each, outcome),
            )
            for each in missing[:_MOST_SHOWN]
        ],
    )
    if len(missing) > _MOST_SHOWN:
        yield f" and {len(missing) - _MOST_SHOWN:,} more; --json lists all"


def _why(process: Any, outcome: Outcome) -> str:
    if process.state == FAILED:
        return str(process.error)
    return "may have started before the hook was set" if outcome.is_hook_late else "no answer"


# --- The commands -------------------------------------------------------------------------------------------------


@click.command(
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
@address_option
@timeout_option()
@json_option
@click.pass_context
def enable(
    context: click.Context,
    settings: tuple[str, ...],
    hook: str | None,
    actors: bool,
    address: str | None,
    timeout: float,
    in_json: bool,
) -> None:
    """Record spans on a running cluster from now on, in all of its processes, including later ones.

    Use it after `disable`, or on a cluster that was started with a hook and OTEL_SDK_DISABLED=true. You can give
    settings, as with `configure`.

    On a cluster without a hook, --hook sets one for processes that start from now on. It does not change running
    processes. With --actors, named actors run the hook now, between two of their calls. They include the actors of
    Serve.

    The command prints how many processes record spans, and lists the others. The exit code is 1 if any process does not
    record spans, and 2 for wrong usage.
    """
    if hook is not None and (not is_ours(hook) or hook not in HOOKS):
        raise click.BadParameter(f"{hook!r} is not one of {', '.join(HOOKS)}", param_hint="--hook")
    if actors and hook is None:
        raise click.UsageError("--actors needs --hook, the hook that actors run")
    wanted = SettingsChange(enabled=True, variables=given(settings), hook=hook, in_actors=actors)
    run(context, wanted, address, timeout, in_json=in_json)


@click.command(
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
@address_option
@timeout_option()
@json_option
@click.pass_context
def disable(context: click.Context, duration: int | None, address: str | None, timeout: float, in_json: bool) -> None:
    """Record nothing on a running cluster from now on, in all of its processes, until `enable`.

    This includes processes that start later. Open spans end as usual, and are delivered. A hook that `enable --hook`
    has set is removed.

    With --for, each process records again by itself after that time, and such a hook stays.

    The command prints how many processes have stopped, and lists the others. The exit code is 1 if any process has not
    stopped.
    """
    if duration is not None and not 10**9 <= duration <= _MOST_NS:
        raise click.BadParameter(
            f"{duration / 1e9:g} s is not valid: expected a second or more, such as 30m or 1h", param_hint="--for"
        )
    until = None if duration is None else time.time() + duration / 1e9
    run(context, SettingsChange(enabled=False, until=until), address, timeout, in_json=in_json)


@click.command(
    epilog=examples(
        "ray-tracing-hooks configure OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.1",
        "ray-tracing-hooks configure exclude='Poller.*' rate_limit=100",
        "ray-tracing-hooks configure OTEL_EXPORTER_OTLP_HEADERS    # its value in this shell",
        "ray-tracing-hooks configure --unset exclude",
    ),
)
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--unset", metavar="NAME", multiple=True, help="Restore the value that each process started with.")
@click.option(
    "--reset",
    is_flag=True,
    help="Undo all changes, including enable and disable, and then apply the given settings.",
)
@address_option
@timeout_option()
@json_option
@click.pass_context
def configure(
    context: click.Context,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    reset: bool,
    address: str | None,
    timeout: float,
    in_json: bool,
) -> None:
    """Change settings in all processes of a running cluster, and in those that start later.

    NAME is a variable, such as RAY_TRACING_EXCLUDE or OTEL_TRACES_SAMPLER, or the name of a setting as in the YAML
    file, such as exclude. Without =VALUE, it gets its value in this shell. The change takes precedence over the
    variables of each process. You can change samplers, filters, rate limits, exporters and their addresses; other
    settings are refused.

    The command prints how many processes have applied the change, and lists the others. The exit code is 1 if any
    process has not applied it, and 2 for wrong usage.
    """
    variables = given(settings, unset)
    if not variables and not reset:
        raise click.UsageError("nothing to change: give NAME=VALUE, --unset NAME or --reset")
    run(context, SettingsChange(variables=variables, reset=reset), address, timeout, in_json=in_json)
