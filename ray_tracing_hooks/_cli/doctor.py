"""``ray-tracing-hooks doctor``: finds out why there are no spans."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Sequence

import click

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._cli.asking import NO_RAY, cluster_address
from ray_tracing_hooks._cli.options import address_option, examples, json_option, timeout_option
from ray_tracing_hooks._cli.screen import Line, print_lines, progress
from ray_tracing_hooks._insight.analysis.wording import count
from ray_tracing_hooks._ops.checks import findings
from ray_tracing_hooks._ops.diagnosis import GOOD, PROBLEM, WARNING, Diagnosis, where
from ray_tracing_hooks._ops.doctor import examine
from ray_tracing_hooks._ops.facts import Facts, Host, as_json
from ray_tracing_hooks._ops.head import NoClusterError, NoRayError
from ray_tracing_hooks._safety.guard import safe
from ray_tracing_hooks._version import __version__

_STYLES = {PROBLEM: {"fg": "red"}, WARNING: {"fg": "yellow"}, GOOD: {"fg": "green"}}


@click.command(
    epilog=examples(
        "ray-tracing-hooks doctor",
        "ray-tracing-hooks doctor --address 10.0.0.1:6379",
        "ray-tracing-hooks doctor --hook ray_tracing_hooks.otlp:setup",
        "ray-tracing-hooks doctor --report",
    ),
)
@address_option
@click.option("--hook", metavar="MODULE:NAME", help="Check this hook on this machine, without a cluster.")
@click.option("--no-test-span", is_flag=True, help="Send no test spans.")
@timeout_option()
@json_option
@click.option("--report", "reports", is_flag=True, help="Print a block for a bug report: versions, settings, problems.")
@click.pass_context
def doctor(
    context: click.Context,
    address: str | None,
    hook: str | None,
    no_test_span: bool,
    timeout: float,
    in_json: bool,
    reports: bool,
) -> None:
    """Check every node of a running cluster, and this machine, for reasons why spans do not arrive.

    On each node, it checks versions of the package, the hook in a worker, and settings. A test span goes to each
    destination. It also checks room on the disk, shippers, lost spans, and clocks. Each finding says what is wrong,
    where, and what to do. Without a cluster, it checks this machine, and warns about that.

    --report shows no passwords, keys or headers, but it does show host names and addresses: read it before you publish
    it.

    The check leaves no spans in the traces of your programs. Test spans have the service ray-tracing-hooks-doctor;
    local files get none. The exit code is 1 if there is a problem, 0 if there is none, and 2 for wrong usage.
    """
    if hook is not None and ":" not in hook:
        raise click.BadParameter(
            f"{hook!r} is not a hook: expected MODULE:NAME, such as ray_tracing_hooks.otlp:setup", param_hint="--hook"
        )
    if in_json and reports:
        raise click.UsageError("--json and --report print different things: give one of them")
    found, alone = None, ""
    try:
        found = cluster_address(address)
    except NoClusterError as error:
        alone = "" if hook else str(error)  # with a hook, nobody expects a cluster
    except NoRayError as error:
        alone = f"{NO_RAY}: {error}"
    with progress(shown=not in_json) as advance:
        facts = examine(found, advance, timeout=timeout, hook=hook, sends=not no_test_span, alone=alone)
    results = findings(facts)
    if in_json:
        click.echo(json.dumps(as_json(facts, results), indent=2))
    elif reports:
        click.echo("\n".join(("```text", *map(safe, as_text(facts, results)), "```")))
    else:
        print_lines(_lines(facts, results))
    if any(finding.severity == PROBLEM for finding in results):
        context.exit(1)


def _lines(facts: Facts, results: Sequence[Diagnosis]) -> Iterator[str | Line]:
    yield _title(facts)
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


def as_text(facts: Facts, findings: Sequence[Diagnosis]) -> Iterator[str]:
    """The report of ``doctor --report``: versions, the settings that are set, without secrets, and what is wrong.

    Places with the same versions and settings have them once.
    """
    yield f"ray-tracing-hooks {__version__}, compiled part {_compiled.use.described()}, on {platform.platform()}"
    cluster = f"cluster {facts.address}, {count(len(facts.nodes), 'node')}" if facts.address else "no cluster"
    yield f"{cluster}, hook {facts.hook or 'none'}"
    described: dict[tuple[str, ...], list[str]] = {}
    for host in facts.hosts:
        described.setdefault(tuple(_described(host)), []).append(host.name)
    for lines, names in described.items():
        yield f"{', '.join(names)}:"
        yield from (f"  {line}" for line in lines)
    found = [finding for finding in findings if finding.severity != GOOD]
    yield "problems and warnings:" if found else "problems and warnings: none"
    for finding in found:
        at = f" ({', '.join(finding.where)})" if finding.where else ""
        yield f"  {finding.severity} {finding.id}{at}: {finding.what}"
        yield from (f"    {detail}" for detail in finding.details)


def _described(host: Host) -> Iterator[str]:
    versions = {
        "Python": host.python,
        "Ray": host.ray,
        "ray-tracing-hooks": host.package,
        **dict(sorted(host.distributions.items())),
    }
    yield ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if host.examined is not None:
        yield f"exporters: {', '.join(host.examined.exporters) or 'none'}"
        yield from (f"{name}={value}" for name, (value, _) in sorted(host.examined.settings.items()))
