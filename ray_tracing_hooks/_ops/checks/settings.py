"""Wrong, unknown and differing settings, and those that switch tracing off; and hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ray_tracing_hooks._ops.diagnosis import GOOD, PROBLEM, WARNING, Diagnosis, where
from ray_tracing_hooks._ops.facts import Examined, Facts, Host
from ray_tracing_hooks._ops.hooks import BY_SETTINGS, HOOKS, OF_RAY, closest, is_ours

_MAY_DIFFER = frozenset({"OTEL_RESOURCE_ATTRIBUTES"})
"""Variables that are meant to differ between nodes."""

_OF_PLACES = re.compile(r"ENDPOINT|_HOST|_BACKEND_SERVICES")
"""Variables that may differ as long as spans arrive: a node may have a collector of its own."""

_CONFIG = "`ray-tracing-hooks config` on the node shows all settings and their sources"


def check(facts: Facts) -> Iterator[Diagnosis]:
    """The settings of each host, and then their differences."""
    wrong = [finding for host in facts.hosts for finding in _of_host(host)]
    if facts.unreachable:  # its hook is not known
        wrong = [finding for finding in wrong if finding.id != "endpoint-unused"]
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
    here = (host.name,)
    for severity, text in examined.problems:
        yield Diagnosis(
            "setting-wrong" if severity == PROBLEM else "setting-odd",
            severity,
            text.removesuffix("."),
            here,
            f"correct it where you start Ray or the driver; {_CONFIG}" + examined.where_to_set(text),
        )
    for wrong, right in examined.misspelled:
        yield Diagnosis(
            "variable-misspelled", WARNING, f"nothing reads {wrong}", here, f"did you mean {right}? Set that instead"
        )
    for each in _questionable(examined, here):
        yield each._replace(advice=each.advice + examined.where_to_set(f"{each.what} {each.advice}"))


def _questionable(examined: Examined, here: tuple[str, ...]) -> Iterator[Diagnosis]:
    """Valid settings by which nothing is recorded, or less than expected, or which endanger programs."""
    value = examined.value
    if value("RAY_TRACING_STRICT") == "1":
        yield Diagnosis(
            "strict",
            WARNING,
            "RAY_TRACING_STRICT=1: an error in tracing ends workers and programs",
            here,
            "unset it outside of tests",
        )
    if not examined.is_on:
        yield Diagnosis(
            "switched-off",
            PROBLEM,
            "`ray-tracing-hooks disable` has switched tracing off",
            here,
            "`ray-tracing-hooks enable` switches it on again",
        )
    if value("OTEL_SDK_DISABLED") == "true":
        yield Diagnosis(
            "tracing-disabled",
            PROBLEM,
            "OTEL_SDK_DISABLED=true switches tracing off",
            here,
            "switch it on with `ray-tracing-hooks enable`, or unset it and restart Ray",
        )
        return
    if not examined.exporters and value("RAY_TRACING_SKYWALKING_TRANSPORT") == "none":
        yield Diagnosis(
            "only-joins",
            WARNING,
            "RAY_TRACING_SKYWALKING_TRANSPORT=none: traces are joined by headers, and nothing is recorded",
            here,
            "to record spans, name another exporter in RAY_TRACING_EXPORTERS",
        )
    elif not examined.exporters:
        name = "OTEL_TRACES_EXPORTER" if value("RAY_TRACING_EXPORTERS") == "" else "RAY_TRACING_EXPORTERS"
        yield Diagnosis(
            "no-exporter",
            PROBLEM,
            f"{name}=none: nothing is recorded",
            here,
            "set RAY_TRACING_EXPORTERS=local or otlp, or use a hook with an exporter of its own, such as "
            "ray_tracing_hooks.otlp:setup",
        )
    sampler, ratio = value("OTEL_TRACES_SAMPLER").lower(), value("OTEL_TRACES_SAMPLER_ARG")
    keeps = value("RAY_TRACING_KEEP_ERRORS") == "1" or value("RAY_TRACING_KEEP_SLOWER") != ""
    share = _share(sampler, ratio)
    if share == 0:
        yield Diagnosis(
            "not-sampled",
            WARNING if keeps else PROBLEM,
            f"no trace is sampled: OTEL_TRACES_SAMPLER={sampler}{f', OTEL_TRACES_SAMPLER_ARG={ratio}' if ratio else ''}"
            + ("; only spans that fail or are slow are recorded" if keeps else ""),
            here,
            "unset OTEL_TRACES_SAMPLER, or set a ratio above 0",
        )
    elif share < 0.01:
        yield Diagnosis(
            "rarely-sampled",
            WARNING,
            f"only {share:.3%} of traces are sampled (OTEL_TRACES_SAMPLER_ARG={ratio}), so a short test shows nothing",
            here,
            "raise OTEL_TRACES_SAMPLER_ARG for a test, or record spans that fail with RAY_TRACING_KEEP_ERRORS=1",
        )
    if value("RAY_TRACING_RAY") == "none":
        yield Diagnosis(
            "no-part-of-ray",
            PROBLEM,
            "RAY_TRACING_RAY=none: calls of Ray are not recorded",
            here,
            "unset it, or name parts, such as task,actor,job,serve",
        )
    if value("OTEL_PROPAGATORS") == "none":
        yield Diagnosis(
            "no-propagation",
            WARNING,
            "OTEL_PROPAGATORS=none: traces end where a request enters or leaves the cluster",
            here,
            "unset it, or set tracecontext,baggage",
        )
    endpoint = next((name for name in examined.settings if re.fullmatch(r"OTEL_EXPORTER_OTLP_\w*ENDPOINT", name)), None)
    if endpoint and examined.exporters == ("local",):
        yield Diagnosis(
            "endpoint-unused",
            WARNING,
            f"{endpoint} is set, but spans go to local files only",
            here,
            "to send them, use the hook ray_tracing_hooks.otlp:setup, or ray_tracing_hooks:setup with "
            "RAY_TRACING_EXPORTERS=otlp",
        )


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
        yield Diagnosis(
            "settings-differ",
            WARNING,
            "settings differ between nodes",
            advice="set these variables to the same values on each node, where `ray start` runs",
            details=tuple(details),
        )


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
        yield Diagnosis(
            "settings-of-driver",
            WARNING,
            "a driver started from this shell has other settings than the cluster, so its spans may go elsewhere",
            advice="if you start drivers here, set the variables to the values of the cluster",
            details=tuple(
                f"{variable}: {here.value(variable) or 'not set'} here, {nodes[0].value(variable) or 'not set'} there"
                for variable in different
            ),
        )


def _variables(*examined: Examined) -> list[str]:
    return sorted({variable for each in examined for variable in each.settings} - _MAY_DIFFER)


def _matters(variable: str, facts: Facts) -> bool:
    if not _OF_PLACES.search(variable):
        return True
    return any(trial.error for host in facts.hosts if host.examined for trial in host.examined.trials)


_START = "ray start --head --tracing-startup-hook={hook}"
_RESTART = "start the cluster with a hook, on its head: `{start}`; in KubeRay, set headGroupSpec.rayStartParams"


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
            yield Diagnosis(
                "hook-without-effect",
                PROBLEM,
                "the hook is called, but does not trace the worker",
                (node.name,),
                "fix the problem that it reports; with RAY_TRACING_STRICT=1, it raises the error",
                node.reported,
            )
        yield from _reported(node)
    works = [node for node in facts.answered if node.traced and not node.hook_failed]
    if works and len(works) == len(facts.nodes):
        many = f"workers of {'all nodes' if len(works) > 1 else 'the node'}"
        yield Diagnosis("hook", GOOD, f"{facts.hook} traces {many}")
    elif facts.head is None and facts.hook and not facts.here.hook_error and not facts.here.package_error:
        yield Diagnosis("hook", GOOD, f"{facts.hook} can be imported here")


def _of_cluster(facts: Facts) -> Iterator[Diagnosis]:
    assert facts.head is not None
    hook = facts.head.hook
    if hook is None:
        yield Diagnosis(
            "hook-missing",
            PROBLEM,
            "the cluster was started without a tracing hook, so nothing is traced",
            advice=_RESTART.format(start=_START.format(hook=BY_SETTINGS))
            + ". A hook that a driver names in ray.init() has no effect on a running cluster",
        )
    elif hook == OF_RAY:
        yield Diagnosis(
            "hook-of-ray",
            PROBLEM,
            f"the hook of the cluster is Ray's own ({hook}), which does not use this package",
            advice=_RESTART.format(start=_START.format(hook="ray_tracing_hooks.local:setup")),
        )
    elif not is_ours(hook) and facts.answered and not any(node.called or node.hook_failed for node in facts.answered):
        yield Diagnosis(
            "hook-of-others",
            PROBLEM,
            f"the hook of the cluster, {hook}, does not call a hook of this package",
            advice="call `ray_tracing_hooks.setup()` in it, or "
            + _RESTART.format(start=_START.format(hook=BY_SETTINGS)),
        )
    if facts.head.is_hook_late:
        yield Diagnosis(
            "hook-late",
            WARNING,
            "the hook was set while the cluster was running: workers that had started before are not traced",
            advice="restart the cluster with the hook, or wait until these workers have ended",
        )


def _reported(node: Host) -> Iterator[Diagnosis]:
    """What the hook has reported in the worker, if it is not about settings, which are checked in any case."""
    known = {text.rstrip(".") for _, text in (node.examined.problems if node.examined is not None else ())}
    for text in node.reported if node.traced else ():
        if text.rstrip(".") not in known and not re.search(r"\bis ignored\b|^unknown ", text):
            yield Diagnosis(
                "worker-reports",
                PROBLEM,
                f"a worker reports a problem of tracing: {text}",
                (node.name,),
                "fix the reported problem; other findings may say more about the cause",
            )


def _failed(facts: Facts, host: Host) -> Diagnosis:
    """Why the workers of a node end when they start, or why the hook cannot be imported here."""
    hook, error = str(facts.hook), host.hook_error
    ends = "every worker ends when it starts, and no task runs"
    if not error:
        return Diagnosis(
            "worker-ends",
            PROBLEM,
            ends,
            (host.name,),
            "fix the reported problem, and restart Ray on the node; see the error in worker-*.err, in the logs folder "
            "of its session",
            host.reported,
        )
    if is_ours(hook) and hook not in HOOKS:
        advice = f"did you mean {closest(hook)}? Restart the head: `{_START.format(hook=closest(hook))}`"
    elif "ModuleNotFoundError" in error or "ImportError" in error:
        advice = "install the module where workers run; they cannot import from the folder of the driver's script"
    else:
        advice = "a hook must not raise an exception: fix it, or restart the head with another one"
    then = f", so {ends}" if facts.head is not None else ""
    return Diagnosis("hook-fails", PROBLEM, f"the hook {hook} does not work{then}", (host.name,), advice, (error,))
