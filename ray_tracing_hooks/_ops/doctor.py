"""Collects the facts for the checks: of the head, of every node, and of this machine."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec

from ray_tracing_hooks._connection.folders import session_folders
from ray_tracing_hooks._ops import cluster, probe
from ray_tracing_hooks._ops.cluster import Answer, ConnectError, Node, Visit
from ray_tracing_hooks._ops.facts import LOCAL_HOST, Clock, Facts, Host
from ray_tracing_hooks._ops.head import CLIENT, TIMEOUT, Head, NoAnswerError, ask
from ray_tracing_hooks._ops.hooks import BY_SETTINGS
from ray_tracing_hooks._ray.cluster import HOOK, NAMESPACE
from ray_tracing_hooks._safety.guard import describe
from ray_tracing_hooks._settings.values import latest_session
from ray_tracing_hooks._version import __version__

_PINGS = 3
_PING_TIMEOUT = 5.0


Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many of its parts are done, and how many there are."""


def examine(
    address: str | None, progress: Progress, *, timeout: float, hook: str | None, sends: bool, alone: str
) -> Facts:
    """All facts; those of this machine alone where ``address`` is None, because of ``alone``.

    A node may take ``timeout`` seconds to answer. ``hook`` is the one that is to be used, where no cluster runs, and
    ``sends`` says that test spans are sent.
    """
    trace_id = secrets.token_hex(16) if sends else None
    request: dict[str, Any] = {
        "version": __version__,
        "is_worker": True,
        "trace_id": trace_id,
        "timeout": min(timeout, 15.0),
    }
    if address is None:
        progress("looking at this machine", 0, 1)
        hook = hook or BY_SETTINGS
        here = _here({**request, "hook": hook}, is_alone=True)
        return Facts(None, None, "", False, hook, (), here, alone)
    with ThreadPoolExecutor(1) as threads:
        return _of_cluster(address, timeout, {**request, "hook": hook}, progress, threads)


def _of_cluster(
    address: str, timeout: float, request: dict[str, Any], progress: Progress, threads: ThreadPoolExecutor
) -> Facts:
    progress("asking the head", 0, 1)
    head: Head | None = None
    unreachable, needs_token = "", False
    if not address.startswith(CLIENT):
        try:
            head = ask(address, TIMEOUT)
        except NoAnswerError as error:
            unreachable, needs_token = str(error), error.needs_token
    hook = head.hook if head is not None else None
    request = {**request, "control": head.control if head is not None else ""}
    if unreachable:
        here = _here(request)
        return Facts(address, None, unreachable, needs_token, hook, (), here)
    here_later: Future[Host] = threads.submit(_here, {**request, "hook": hook})
    hosts: list[Host] = []
    try:
        with cluster.connected(address):
            if head is None:
                head = _head_of_client()
                hook = head.hook
            hosts = _nodes(cluster.nodes(), {**request, "hook": hook}, timeout, progress)
        if any(host.failure == "died" for host in hosts):
            hosts = _again_without_hook(address, hosts, {**request, "hook": hook}, timeout, progress)
    except ConnectError as error:
        unreachable = f"the connection to {address} fails: {error}"
    return Facts(address, head, unreachable, False, hook, tuple(hosts), here_later.result())


def _head_of_client() -> Head:
    """What a client can know of the head that it is connected to through a server."""
    import ray  # noqa: PLC0415  only where a cluster is asked
    from ray.experimental import internal_kv  # noqa: PLC0415

    hook = internal_kv._internal_kv_get(HOOK, namespace=NAMESPACE)  # noqa: SLF001  it has no public name
    return Head("", hook.decode(errors="replace") if hook else None, False, ray.__version__)


def _nodes(nodes: Sequence[Node], request: dict[str, Any], timeout: float, progress: Progress) -> list[Host]:
    """What is found on each node, by an ordinary worker."""
    with cluster.visiting(nodes) as visit:
        answers = _look(visit, request, timeout, progress, "asking the nodes")
        answered = [node for node, answer in answers.items() if answer.failure is None]
        clocks = _clocks(visit, answered, progress)
    return [_host(node, answers[node], clocks.get(node)) for node in nodes]


def _again_without_hook(
    address: str, hosts: list[Host], request: dict[str, Any], timeout: float, progress: Progress
) -> list[Host]:
    """The same, where workers have died on some nodes: these are asked by workers that skip the hook."""
    died = {host.node for host in hosts if host.failure == "died"}
    with cluster.connected(address, skips_hook=True):
        nodes = [node for node in cluster.nodes() if node in died]
        with cluster.visiting(nodes) as visit:
            doing = "asking nodes where workers end, without the hook"
            answers = _look(visit, {**request, "calls_hook": True}, timeout, progress, doing)
    return [
        _host(host.node, answers[host.node], None, hook_failed=True)
        if host.node is not None and host.node in answers and answers[host.node].failure is None
        else host
        for host in hosts
    ]


def _look(visit: Visit, request: dict[str, Any], timeout: float, progress: Progress, doing: str) -> dict[Node, Answer]:
    done: list[Node] = []

    def answered(node: Node) -> None:
        done.append(node)
        progress(doing, len(done), len(visit.nodes))

    progress(doing, 0, len(visit.nodes))
    return visit.call(probe.look, request, timeout=timeout, on_answer=answered)


def _host(node: Node, answer: Answer, clock: Clock | None, *, hook_failed: bool = False) -> Host:
    if answer.failure is not None:
        return Host(node.name, node, failure=answer.failure, text=answer.text)
    host = Host.of(node.name, answer.value, node, hook_failed=hook_failed)
    return msgspec.structs.replace(host, clock=clock)


def _clocks(visit: Visit, nodes: Sequence[Node], progress: Progress) -> dict[Node, Clock]:
    """The clock of each node: the quickest of several answers says how far it is ahead."""
    clocks: dict[Node, Clock] = {}
    for number, node in enumerate(nodes):
        progress("comparing clocks", number, len(nodes))
        for _ in range(_PINGS):
            before = time.time_ns()
            answer = visit.call(probe.clock, timeout=_PING_TIMEOUT, nodes=[node])[node]
            after = time.time_ns()
            if answer.failure is not None:
                break
            clock = Clock((answer.value - (before + after) / 2) / 1e9, (after - before) / 2e9)
            if node not in clocks or clock.uncertainty < clocks[node].uncertainty:
                clocks[node] = clock
    return clocks


def _here(request: dict[str, Any], *, is_alone: bool = False) -> Host:
    """What is found on this machine. Where no cluster runs, that includes whether the hook can be imported, and what an
    earlier cluster has left.
    """
    left: dict[str, Any] = {}
    if is_alone and os.path.isdir(path := latest_session()):
        left["spool_dirs"] = list(session_folders(os.path.realpath(path)))
    try:
        found = probe.look({**request, **left, "is_worker": False})
        if is_alone:
            found["hook_error"] = probe.import_error(request["hook"])
    except Exception as error:  # noqa: BLE001  the cluster is looked at in any case
        return Host(LOCAL_HOST, examination_error=describe(error))
    host = Host.of(LOCAL_HOST, found)
    if not host.ray:
        host = msgspec.structs.replace(host, ray=_ray_version())
    return host


def _ray_version() -> str:
    try:
        import ray  # noqa: PLC0415  it may be missing
    except ImportError:
        return ""
    return str(ray.__version__)
