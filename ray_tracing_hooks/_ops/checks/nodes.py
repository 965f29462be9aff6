"""Which nodes answer, which versions of the package and of its requirements they have, and whether clocks agree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median_low

from ray_tracing_hooks._insight.analysis.wording import duration
from ray_tracing_hooks._ops.diagnosis import GOOD, PROBLEM, WARNING, Diagnosis
from ray_tracing_hooks._ops.facts import LOCAL_HOST, Clock, Facts, Host
from ray_tracing_hooks._version import __version__


def check(facts: Facts) -> Iterator[Diagnosis]:
    """The cluster, and then each of its nodes."""
    if facts.alone:
        yield Diagnosis(
            "no-cluster",
            WARNING,
            f"{facts.alone}: only this machine was checked",
            advice="run this on a node of a cluster, or give its address, --address HOST:PORT",
        )
    if facts.needs_token:
        yield Diagnosis(
            "cluster-token",
            PROBLEM,
            facts.unreachable,
            advice="set RAY_AUTH_MODE=token, with the token in RAY_AUTH_TOKEN or in ~/.ray/auth_token; drivers need "
            "both too",
        )
    elif facts.unreachable:
        yield Diagnosis(
            "cluster-unreachable",
            PROBLEM,
            facts.unreachable,
            advice="run this on another node of the cluster, or connect with --address ray://HOST:10001"
            if facts.head is not None
            else "give the address of a running head, --address HOST:PORT (by default port 6379), on a node of the "
            "cluster; from elsewhere, connect with --address ray://HOST:10001",
        )
    for node in facts.nodes:
        where = (node.name,)
        if node.failure == "silent":
            yield Diagnosis(
                "node-silent",
                PROBLEM,
                f"{node.text} came",
                where,
                "is the node overloaded, cut off or suspended? See `ray status` and `top`, or wait longer with "
                "--timeout",
            )
        elif node.failure == "gone":
            yield Diagnosis(
                "node-gone", WARNING, "the node left the cluster during this check", where, "run this again"
            )
        elif node.failure == "died":
            yield Diagnosis(
                "worker-died",
                PROBLEM,
                "workers end when they start",
                where,
                "see the error in worker-*.err and python-core-worker-*.log, in the logs folder of the Ray session",
                (node.text,),
            )
        elif node.failure is not None:
            yield Diagnosis("node-failed", PROBLEM, f"the node could not be asked: {node.text}", where, "see the error")
        elif node.examination_error:
            yield Diagnosis(
                "node-unexamined",
                PROBLEM,
                f"the node could not be examined: {node.examination_error}",
                where,
                "run `ray-tracing-hooks doctor` on that node",
            )
    if facts.nodes and len(facts.answered) == len(facts.nodes):
        rays = ", ".join(sorted({node.ray for node in facts.nodes if node.ray}))
        many = f"all {len(facts.nodes)} nodes answer" if len(facts.nodes) > 1 else "the node answers"
        yield Diagnosis("nodes", GOOD, f"{many}: Ray {rays}, ray-tracing-hooks {__version__}")


OLDEST_RAY = (2, 40)
"""The oldest version of Ray that is tested."""


def check_packages(facts: Facts) -> Iterator[Diagnosis]:
    """The versions on each node, and whether they are the same."""
    for host in facts.hosts:
        yield from _of_host(host)
    yield from _differences(facts)


def _of_host(host: Host) -> Iterator[Diagnosis]:
    where = (host.name,)
    if host.package_error:
        is_missing = _is_missing(host)
        ends = ", so every worker ends when it starts" if host.hook_failed else ""
        yield Diagnosis(
            "package-missing" if is_missing else "package-broken",
            PROBLEM,
            f"ray-tracing-hooks is {'not installed' if is_missing else 'installed, but cannot be imported'}{ends}",
            where,
            f"install version {__version__} in the environment of the workers, preferably in their image",
            (f"{host.executable}: {host.package_error}",),
        )
    if host.ray and number(host.ray) < OLDEST_RAY:
        yield Diagnosis(
            "ray-old",
            PROBLEM,
            f"Ray {host.ray} is older than 2.40, the oldest version that is tested",
            where,
            "use a newer Ray; the log of the driver names the parts that this version lacks, which are not traced",
        )


def _is_missing(host: Host) -> bool:
    return "No module named 'ray_tracing_hooks'" in (host.package_error or "")


def _differences(facts: Facts) -> Iterator[Diagnosis]:
    """Other versions on other nodes."""
    packages = {host.package for host in facts.hosts if host.package}
    if len(packages) > 1:
        for host in facts.hosts:
            if host.package and host.package != __version__:
                yield Diagnosis(
                    "package-version",
                    PROBLEM,
                    f"ray-tracing-hooks {host.package} is installed, and {__version__} {LOCAL_HOST}",
                    (host.name,),
                    f"install one version everywhere, such as {__version__}",
                )
    # Where the package is missing, so are those that it needs.
    compared = [host for host in facts.answered if not _is_missing(host)]
    for name in sorted({name for host in compared for name in host.distributions}):
        if name == "ray-tracing-hooks":
            continue
        by_version: dict[str, list[str]] = {}
        for host in compared:
            by_version.setdefault(host.distributions.get(name, "missing"), []).append(host.name)
        if len(by_version) > 1:
            found = ", ".join(
                f"{version} on {', '.join(sorted(names))}" for version, names in sorted(by_version.items())
            )
            yield Diagnosis(
                "versions-differ",
                WARNING,
                f"{name} differs between nodes: {found}",
                advice="use the same image, or the same requirements, on every node",
            )


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
            yield Diagnosis(
                "clock",
                PROBLEM if sure > _WRONG else WARNING,
                f"the clock is {duration(abs(apart) * 1e9)} {'ahead' if apart > 0 else 'behind'}",
                (name,),
                "synchronize it, for example with chrony: spans of this node have wrong times, "
                "and back ends may refuse them",
            )
    if furthest <= _NOTICEABLE:
        yield Diagnosis("clocks", GOOD, f"clocks agree within {duration(furthest * 1e9)}")
