"""Which nodes answer, and whether the cluster can be reached at all."""

from __future__ import annotations

from collections.abc import Iterator

from ray_tracing_hooks._ops.facts import Facts
from ray_tracing_hooks._ops.finding import GOOD, PROBLEM, WARNING, Finding
from ray_tracing_hooks._version import __version__


def check(facts: Facts) -> Iterator[Finding]:
    """The cluster, and then each of its nodes."""
    if facts.needs_token:
        yield Finding(
            "cluster-token",
            PROBLEM,
            facts.unreachable,
            advice="copy the token to ~/.ray/auth_token on this machine, or set RAY_AUTH_TOKEN and "
            "RAY_AUTH_MODE=token: drivers need it too",
        )
    elif facts.unreachable:
        yield Finding(
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
            yield Finding(
                "node-silent",
                PROBLEM,
                f"{node.text} came",
                where,
                "is the node overloaded, cut off or suspended? See `ray status`, and `top`; --timeout waits longer",
            )
        elif node.failure == "gone":
            yield Finding("node-gone", WARNING, "the node left the cluster meanwhile", where, "run this again")
        elif node.failure == "died":
            yield Finding(
                "worker-died",
                PROBLEM,
                "workers end when they start",
                where,
                "worker-*.err and python-core-worker-*.log, in the folder logs of the Ray session, have the error",
                (node.text,),
            )
        elif node.failure is not None:
            yield Finding("node-failed", PROBLEM, f"the node could not be asked: {node.text}", where, "see the error")
        elif node.examination_error:
            yield Finding(
                "node-unexamined",
                PROBLEM,
                f"the node could not be examined: {node.examination_error}",
                where,
                "run `ray-tracing-hooks doctor` on that node",
            )
    if facts.nodes and len(facts.answered) == len(facts.nodes):
        rays = ", ".join(sorted({node.ray for node in facts.nodes if node.ray}))
        many = f"all {len(facts.nodes)} nodes answer" if len(facts.nodes) > 1 else "the node answers"
        yield Finding("nodes", GOOD, f"{many}: Ray {rays}, ray-tracing-hooks {__version__}")
