"""Wrong, unknown and differing settings, and those that switch tracing off; and hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ray_tracing_hooks._ops.checks.messages import finding
from ray_tracing_hooks._ops.diagnosis import GOOD, PROBLEM, WARNING, Diagnosis, where
from ray_tracing_hooks._ops.facts import Examined, Facts, Host
from ray_tracing_hooks._ops.hooks import BY_SETTINGS, HOOKS, OF_RAY, closest, is_ours

_MAY_DIFFER = frozenset({"OTEL_RESOURCE_ATTRIBUTES"})
"""Variables that are meant to differ between nodes."""

_OF_PLACES = re.compile(r"ENDPOINT|_HOST|_BACKEND_SERVICES")
"""Variables that may differ as long as spans arrive: a node may have a collector of its own."""


def check(facts: Facts) -> Iterator[Diagnosis]:
    """The settings of each host, and then their differences."""
    wrong = [found for host in facts.hosts for found in _of_host(host)]
    if facts.unreachable:  # its hook is not known
        wrong = [found for found in wrong if found.id != "endpoint-unused"]
    wrong += [*_between_nodes(facts), *_between_here_and_nodes(facts)]
    yield from wrong
    if not wrong and facts.answered and all(host.examined for host in facts.hosts):
        yield Diagnosis("settings", GOOD, f"settings are valid{', and the same everywhere' * (len(facts.hosts) > 1)}")
    elif not wrong and facts.here.examined:
        yield Diagnosis("settings", GOOD, "settings are valid")


def _of_host(host: Host) -> Iterator[Diagnosis]:
    examined = host.examined
    if examined is None:
        return
    for severity, text in examined.problems:
        kind = "setting-wrong" if severity == PROBLEM else "setting-odd"
        found = finding(kind, host.name, text=text.removesuffix("."))
        yield found._replace(advice=found.advice + examined.where_to_set(text))
    for wrong, right in examined.misspelled:
        yield finding("variable-misspelled", host.name, wrong=wrong, right=right)
    for each in _questionable(examined, host.name):
        yield each._replace(advice=each.advice + examined.where_to_set(f"{each.what} {each.advice}"))


def _questionable(examined: Examined, here: str) -> Iterator[Diagnosis]:
    """Valid settings by which nothing is recorded, or less than expected, or which endanger programs."""
    value = examined.value
    if value("RAY_TRACING_STRICT") == "1":
        yield finding("strict", here)
    if not examined.is_on:
        yield finding("switched-off", here)
    if value("OTEL_SDK_DISABLED") == "true":
        yield finding("tracing-disabled", here)
        return
    if not examined.exporters and value("RAY_TRACING_SKYWALKING_TRANSPORT") == "none":
        yield finding("only-joins", here)
    elif not examined.exporters:
        name = "OTEL_TRACES_EXPORTER" if value("RAY_TRACING_EXPORTERS") == "" else "RAY_TRACING_EXPORTERS"
        yield finding("no-exporter", here, name=name)
    sampler, ratio = value("OTEL_TRACES_SAMPLER").lower(), value("OTEL_TRACES_SAMPLER_ARG")
    share = _share(sampler, ratio)
    if share == 0:
        given = f"{sampler}, OTEL_TRACES_SAMPLER_ARG={ratio}" if ratio else sampler
        if value("RAY_TRACING_KEEP_ERRORS") == "1" or value("RAY_TRACING_KEEP_SLOWER"):
            kept = "; only spans that fail or are slow are recorded"
            yield finding("not-sampled", here, sampler=given, kept=kept)._replace(severity=WARNING)
        else:
            yield finding("not-sampled", here, sampler=given, kept="")
    elif share < 0.01:
        yield finding("rarely-sampled", here, share=share, ratio=ratio)
    if value("RAY_TRACING_RAY") == "none":
        yield finding("no-part-of-ray", here)
    if value("OTEL_PROPAGATORS") == "none":
        yield finding("no-propagation", here)
    endpoint = next((name for name in examined.settings if re.fullmatch(r"OTEL_EXPORTER_OTLP_\w*ENDPOINT", name)), None)
    if endpoint and examined.exporters == ("local",):
        yield finding("endpoint-unused", here, name=endpoint)


def _share(sampler: str, ratio: str) -> float:
    """The share of traces that a standard sampler samples."""
    name = sampler.removeprefix("parentbased_")
    if name == "always_off":
        return 0.0
    if name == "traceidratio" and ratio:
        return float(ratio)
    return 1.0


def _between_nodes(facts: Facts) -> Iterator[Diagnosis]:
    examined = {host.name: host.examined for host in facts.answered if host.examined is not None}
    nodes = dict.fromkeys(node.name for node in facts.nodes)
    details = []
    for variable in _variables(*examined.values()):
        by_value: dict[str, list[str]] = {}
        for name, found in examined.items():
            by_value.setdefault(found.value(variable), []).append(name)
        if len(by_value) > 1 and _matters(variable, facts):
            values = [
                f"{value or 'not set'} {where(tuple(names), nodes)}"
                for value, names in sorted(by_value.items(), key=lambda item: (len(item[1]), item[0]))
            ]
            details.append(f"{variable}: {'; '.join(values)}")
    if details:
        yield finding("settings-differ", "", *details)


def _between_here_and_nodes(facts: Facts) -> Iterator[Diagnosis]:
    """Settings that all nodes have, and this shell has otherwise: a driver that it starts has those of the shell."""
    here = facts.here.examined
    nodes = [host.examined for host in facts.answered if host.examined is not None]
    if here is None or not nodes:
        return
    different = [
        variable
        for variable in _variables(here, *nodes)
        if len({node.value(variable) for node in nodes}) == 1
        and here.value(variable) != nodes[0].value(variable)
        and _matters(variable, facts)
    ]
    if different:
        values = [(name, here.value(name), nodes[0].value(name)) for name in different]
        details = [f"{name}: {ours or 'not set'} here, {theirs or 'not set'} there" for name, ours, theirs in values]
        yield finding("settings-of-driver", "", *details)


def _variables(*examined: Examined) -> list[str]:
    return sorted({variable for each in examined for variable in each.settings} - _MAY_DIFFER)


def _matters(variable: str, facts: Facts) -> bool:
    if not _OF_PLACES.search(variable):
        return True
    return any(trial.error for host in facts.hosts if host.examined for trial in host.examined.trials)


_START = "ray start --head --tracing-startup-hook={hook}"


def check_hook(facts: Facts) -> Iterator[Diagnosis]:
    """The hook of the cluster, or the one that is to be used."""
    if facts.head is not None:
        yield from _of_cluster(facts)
    failed = [node for node in facts.nodes if node.hook_failed or node.hook_error]
    for node in failed:
        if not node.package_error:
            yield _failed(facts, node)
    if facts.here.hook_error and facts.head is None:
        yield _failed(facts, facts.here)
    for node in facts.answered:
        if node.called and not node.traced and not node.hook_failed:
            yield finding("hook-without-effect", node.name, *node.reported)
        yield from _reported(node)
    works = [node for node in facts.answered if node.traced and not node.hook_failed]
    if works and len(works) == len(facts.nodes):
        many = f"workers of {'all nodes' if len(works) > 1 else 'the node'}"
        yield Diagnosis("hook", GOOD, f"{facts.hook} traces {many}")
    elif facts.head is None and facts.hook and not facts.here.hook_error and not facts.here.package_error:
        yield Diagnosis("hook", GOOD, f"{facts.hook} can be imported here")


def _of_cluster(facts: Facts) -> Iterator[Diagnosis]:
    assert facts.head is not None
    hook, start = facts.head.hook, _START.format(hook=BY_SETTINGS)
    if hook is None:
        yield finding("hook-missing", start=start)
    elif hook == OF_RAY:
        yield finding("hook-of-ray", hook=hook, start=_START.format(hook="ray_tracing_hooks.local:setup"))
    elif not is_ours(hook) and facts.answered and not any(node.called or node.hook_failed for node in facts.answered):
        yield finding("hook-of-others", hook=hook, start=start)
    if facts.head.is_hook_late:
        yield finding("hook-late")


def _reported(node: Host) -> Iterator[Diagnosis]:
    """What the hook has reported in the worker, if it is not about settings, which are checked in any case."""
    known = {text.rstrip(".") for _, text in (node.examined.problems if node.examined is not None else ())}
    for text in node.reported if node.traced else ():
        if text.rstrip(".") not in known and not re.search(r"\bis ignored\b|^unknown ", text):
            yield finding("worker-reports", node.name, text=text)


def _failed(facts: Facts, host: Host) -> Diagnosis:
    """Why the workers of a node end when they start, or why the hook cannot be imported here."""
    hook, error = str(facts.hook), host.hook_error
    if not error:
        return finding("worker-ends", host.name, *host.reported)
    if is_ours(hook) and hook not in HOOKS:
        remedy = f"did you mean {closest(hook)}? Restart the head: `{_START.format(hook=closest(hook))}`"
    elif "ModuleNotFoundError" in error or "ImportError" in error:
        remedy = "install the module where workers run; they cannot import from the folder of the driver's script"
    else:
        remedy = "a hook must not raise an exception: fix it, or restart the head with another one"
    then = ", so every worker ends when it starts, and no task runs" if facts.head is not None else ""
    return finding("hook-fails", host.name, error, hook=hook, then=then, remedy=remedy)
