"""``ray-tracing-hooks doctor``: finds out why there are no spans."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import click

from ray_tracing_hooks._cli.asking import NO_RAY, cluster_address
from ray_tracing_hooks._cli.options import address_option, examples, json_option, timeout_option
from ray_tracing_hooks._cli.screen import Line, print_lines, progress
from ray_tracing_hooks._insight.analysis.wording import count
from ray_tracing_hooks._ops.checks import findings
from ray_tracing_hooks._ops.diagnosis import GOOD, PROBLEM, WARNING, Diagnosis, where
from ray_tracing_hooks._ops.doctor import Options, examine
from ray_tracing_hooks._ops.facts import Facts, as_json
from ray_tracing_hooks._ops.head import NoClusterError, NoRayError

_STYLES = {PROBLEM: {"fg": "red"}, WARNING: {"fg": "yellow"}, GOOD: {"fg": "green"}}


@click.command(
    epilog=examples(
        "ray-tracing-hooks doctor",
        "ray-tracing-hooks doctor --address 10.0.0.1:6379",
        "ray-tracing-hooks doctor --hook ray_tracing_hooks.otlp:setup",
    ),
)
@address_option
@click.option("--hook", metavar="MODULE:NAME", help="Check this hook on this machine, without a cluster.")
@click.option("--no-test-span", is_flag=True, help="Send no test spans.")
@timeout_option()
@json_option
@click.pass_context
def doctor(
    context: click.Context,
    address: str | None,
    hook: str | None,
    no_test_span: bool,
    timeout: float,
    in_json: bool,
) -> None:
    """Look at every node of a running cluster, and at this machine, and say what keeps spans from arriving.

    On each node: is the package there, in the same version; does the hook work in a worker; are settings valid and the
    same; does a test span reach every destination; is there room on the disk; do shippers run, and what has been lost;
    do clocks agree. Each finding says what is wrong, where, and what to do. Without a cluster, this machine is looked
    at.

    None of this appears in the traces of programs. Test spans have a service of their own, ray-tracing-hooks-doctor;
    local files get none. The exit code is 1 if there is a problem, 0 if there is none, and 2 for wrong usage.
    """
    if hook is not None and ":" not in hook:
        raise click.BadParameter(
            f"{hook!r} is not a hook: expected MODULE:NAME, such as ray_tracing_hooks.otlp:setup", param_hint="--hook"
        )
    note = ""
    try:
        found: str | None = cluster_address(address)
    except NoClusterError as error:
        found, note = None, f"{error}, so only this machine was looked at; --address names a cluster"
    except NoRayError as error:
        found, note = None, f"{NO_RAY}: {error}"
    with progress(shown=not in_json) as advance:
        facts = examine(found, Options(timeout, hook, not no_test_span), advance)
    results = findings(facts)
    if in_json:
        click.echo(json.dumps(as_json(facts, results), indent=2))
    else:
        print_lines(_lines(facts, results, note))
    if any(finding.severity == PROBLEM for finding in results):
        context.exit(1)


def _lines(facts: Facts, results: Sequence[Diagnosis], note: str) -> Iterator[str | Line]:
    yield _title(facts)
    if note:
        yield Line(note, {"dim": True})
    nodes = {node.name: node for node in facts.nodes}
    number = 0
    for severity, heading in ((PROBLEM, "problem"), (WARNING, "warning")):
        found = [finding for finding in results if finding.severity == severity]
        if found:
            yield ""
            yield count(len(found), heading)
        for finding in found:
            number += 1
            place = where(finding.where, nodes)
            yield Line(f"{number:2}. {finding.what}{f' ({place})' if place else ''}", _STYLES[severity])
            for detail in finding.details:
                yield f"    {detail}"
            if finding.advice:
                yield f"    -> {finding.advice}"
    good = [finding for finding in results if finding.severity == GOOD]
    if good:
        yield ""
        # Without a cluster, most of what can be wrong has not been looked at.
        yield "Passed" if number or facts.address is None else "No problems found"
    for finding in good:
        yield Line(f" ok  {finding.what}", _STYLES[GOOD])


def _title(facts: Facts) -> str:
    if facts.address is None:
        return f"This machine, {facts.here.executable}"
    parts = [f"Cluster {facts.address}"]
    if facts.nodes:
        parts.append(count(len(facts.nodes), "node"))
    if facts.head is not None and facts.head.ray_version:
        parts.append(f"Ray {facts.head.ray_version}")
    if facts.hook:
        parts.append(f"hook {facts.hook}")
    return ", ".join(parts)
