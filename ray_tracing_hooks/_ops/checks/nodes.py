"""Which nodes answer, which versions of the package and of its requirements they have, and whether clocks agree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median_low

from ray_tracing_hooks._insight.analysis.wording import duration
from ray_tracing_hooks._ops.checks.messages import finding
from ray_tracing_hooks._ops.diagnosis import GOOD, PROBLEM, WARNING, Diagnosis
from ray_tracing_hooks._ops.facts import LOCAL_HOST, Clock, Facts, Host
from ray_tracing_hooks._version import __version__

_FAILURES = {"silent": "node-silent", "gone": "node-gone"}
"""Findings by why there is no answer, those without a text."""


def check(facts: Facts) -> Iterator[Diagnosis]:
    """The cluster, and then each of its nodes."""
    if facts.alone:
        yield finding("no-cluster", why=facts.alone)
    if facts.needs_token:
        yield finding("cluster-token", why=facts.unreachable)
    elif facts.unreachable:
        instead = (
            "run this on another node of the cluster, or connect with --address ray://HOST:10001"
            if facts.head is not None
            else "give the address of a running head, --address HOST:PORT (by default port 6379), on a node of the "
            "cluster; from elsewhere, connect with --address ray://HOST:10001"
        )
        yield finding("cluster-unreachable", why=facts.unreachable, instead=instead)
    for node in facts.nodes:
        if node.failure == "died":
            yield finding("worker-died", node.name, node.text)
        elif node.failure is not None:
            yield finding(_FAILURES.get(node.failure, "node-failed"), node.name, error=node.text)
        elif node.examination_error:
            yield finding("node-unexamined", node.name, error=node.examination_error)
    if facts.nodes and len(facts.answered) == len(facts.nodes):
        rays = ", ".join(sorted({node.ray for node in facts.nodes if node.ray}))
        many = f"all {len(facts.nodes)} nodes answer" if len(facts.nodes) > 1 else "the node answers"
        yield Diagnosis("nodes", GOOD, f"{many}: Ray {rays}, ray-tracing-hooks {__version__}")


OLDEST_RAY = (2, 40)
"""The oldest version of Ray that is tested."""


def check_packages(facts: Facts) -> Iterator[Diagnosis]:
    """The versions on each node, and whether they are the same."""
    for host in facts.hosts:
        if host.package_error:
            ends = ", so every worker ends when it starts" if host.hook_failed else ""
            kind, error = "package-missing" if _is_missing(host) else "package-broken", host.package_error
            yield finding(kind, host.name, f"{host.executable}: {error}", ends=ends, version=__version__)
        if host.ray and number(host.ray) < OLDEST_RAY:
            yield finding("ray-old", host.name, found=host.ray)
    yield from _differences(facts)


def _is_missing(host: Host) -> bool:
    return "No module named 'ray_tracing_hooks'" in (host.package_error or "")


def _differences(facts: Facts) -> Iterator[Diagnosis]:
    """Other versions on other nodes."""
    if len({host.package for host in facts.hosts if host.package}) > 1:
        for host in facts.hosts:
            if host.package and host.package != __version__:
                yield finding("package-version", host.name, found=host.package, version=__version__)
    # Where the package is missing, so are those that it needs.
    compared = [host for host in facts.answered if not _is_missing(host)]
    for name in sorted({name for host in compared for name in host.distributions}):
        if name == "ray-tracing-hooks":
            continue
        by_version: dict[str, list[str]] = {}
        for host in compared:
            by_version.setdefault(host.distributions.get(name, "missing"), []).append(host.name)
        if len(by_version) > 1:
            found = ", ".join(f"{version} on {', '.join(sorted(on))}" for version, on in sorted(by_version.items()))
            yield finding("versions-differ", name=name, found=found)


def number(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version."""
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))


_NOTICEABLE, _WRONG = 0.1, 10.0
"""Seconds from which on a difference shows in traces, and from which on back ends may refuse or hide spans."""


def check_clocks(facts: Facts) -> Iterator[Diagnosis]:
    """Each node, and this machine, against the median of all of them."""
    clocks = {node.name: node.clock for node in facts.answered if node.clock is not None}
    if not clocks:
        return
    clocks[LOCAL_HOST] = Clock(0.0, 0.0)
    middle = median_low(clock.offset for clock in clocks.values())
    furthest = 0.0
    for name, clock in clocks.items():
        apart = clock.offset - middle
        sure = abs(apart) - clock.uncertainty
        furthest = max(furthest, abs(apart), clock.uncertainty)
        if sure > _NOTICEABLE:
            direction = "ahead" if apart > 0 else "behind"
            wrong = finding("clock", name, apart=duration(abs(apart) * 1e9), direction=direction)
            yield wrong._replace(severity=PROBLEM if sure > _WRONG else WARNING)
    if furthest <= _NOTICEABLE:
        yield Diagnosis("clocks", GOOD, f"clocks agree within {duration(furthest * 1e9)}")
