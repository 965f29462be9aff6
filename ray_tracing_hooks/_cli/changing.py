"""What ``enable``, ``disable`` and ``configure`` share: they change what is set for a running cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from ray_tracing_hooks._cli.asking import address_option, answering_cluster, visiting
from ray_tracing_hooks._cli.screen import Line, aligned, print_lines, progress
from ray_tracing_hooks._cli.text import SafeError, Seconds, count, until
from ray_tracing_hooks._errors import SettingError
from ray_tracing_hooks._escape import safe
from ray_tracing_hooks._insight.analysis.wording import shortened
from ray_tracing_hooks._ops.assignments import names_of, shown, variables_of
from ray_tracing_hooks._ops.control import APPLIED, FAILED, Change, ControlError, Outcome, UsageError, as_json, change

_MOST_SHOWN = 20
"""The most processes that are listed; ``--json`` has all."""

_TITLE_WIDTH = 48

F = TypeVar("F", bound=Callable[..., Any])


def options(function: F) -> F:
    """The options that these commands share."""
    for option in (
        click.option("--json", "as_json_", is_flag=True, help="Print a JSON object instead of text."),
        click.option(
            "--timeout",
            type=Seconds(least=1),
            default=15.0,
            show_default=True,
            metavar="SECONDS",
            help="How long the processes of a node may take to answer.",
        ),
        address_option,
    ):
        function = option(function)
    return function


def given(settings: Sequence[str], unset: Sequence[str] = ()) -> dict[str, str | None]:
    """The variables of arguments; an invalid one ends the command with exit code 2."""
    try:
        removed, added = names_of(unset), variables_of(settings, os.environ)
    except SettingError as error:
        raise click.UsageError(safe(str(error))) from None
    if both := sorted(added.keys() & set(removed)):
        raise click.UsageError(f"{', '.join(both)} cannot be set and unset at once")
    return {**dict.fromkeys(removed), **added}


def run(context: click.Context, wanted: Change, address: str | None, timeout: float, *, as_json_: bool) -> None:
    """Make the change, and show which processes have it. The exit code is 1 if not all of them have."""
    found = answering_cluster(address)
    try:
        with progress(shown=not as_json_) as advance:
            advance("connecting", 0, 1)
            with visiting(found) as visit:
                outcome = change(visit, wanted, timeout, advance)
    except UsageError as error:
        raise click.UsageError(safe(str(error))) from None
    except ControlError as error:
        raise SafeError(str(error)) from None
    if as_json_:
        click.echo(json.dumps(as_json(found, outcome, shown(outcome.control.variables)), indent=2))
    else:
        print_lines(_lines(found, outcome))
    if not outcome.is_everywhere:
        context.exit(1)


def _lines(address: str, outcome: Outcome) -> Iterator[Any]:
    control = outcome.control
    state = {True: "tracing is on", False: "tracing is off", None: "settings have changed"}[control.enabled]
    yield f"Cluster {address}: {state}{until(control.until)} (version {control.version})"
    for name, value in shown(control.variables).items():
        yield f" {name}={value}"
    counts, total = outcome.counts, len(outcome.processes)
    yield ""
    nodes = count(len(outcome.nodes), "node")
    text = f"applied by {counts[APPLIED]:,} of {count(total, 'process', 'processes')} on {nodes}"
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
        return str(process.text)
    return "may have started before the hook was set" if outcome.is_hook_late else "no answer"
