"""What each node of a cluster records, delivers and has waiting, now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ray_tracing_hooks._ops import probe
from ray_tracing_hooks._ops.cluster import Answer, Node, Visit
from ray_tracing_hooks._ops.facts import Spool, spool_as_json
from ray_tracing_hooks._ship.figures import DestinationFigures

VERSION = 1


class InForce(NamedTuple):
    """What ``enable``, ``disable`` and ``configure`` have set for the cluster, as a node knows it.

    Attributes:
        version: The number of the change; 0 if nothing has been set.
        enabled: Whether spans are recorded; None as the cluster was started.
        told: The version that the processes of this node were told; None if they were told none: the node has joined
            since then, or could not be reached.
        silent: The ids of the processes that were told that version, still run, and have not answered.
        until: When spans are recorded again, in seconds since the epoch, if they are not for a time only.
        variables: The names of the variables that are set.
    """

    version: int
    enabled: bool | None
    told: int | None
    silent: tuple[int, ...] = ()
    until: float | None = None
    variables: tuple[str, ...] = ()

    @property
    def is_untold(self) -> bool:
        """Whether something is set, and nobody has told the processes of this node."""
        return self.version > 0 and self.told is None

    @property
    def is_missed(self) -> bool:
        """Whether the processes of this node were told of an earlier change, and not of this one."""
        return self.told is not None and self.told < self.version


class NodeStatus(NamedTuple):
    """The status of one node.

    Attributes:
        node: The node.
        error: Why there is none; empty if there is one.
        time_ns: When it was taken, by the clock of the node.
        spools: Its spools.
        rates: For each spool, how many spans a second its processes have recorded since the last status; None if that
            is not known.
        control: What is set for the cluster; None if the node does not say.
    """

    node: Node
    error: str
    time_ns: int
    spools: tuple[Spool, ...]
    rates: tuple[float | None, ...]
    control: InForce | None = None

    @property
    def rate(self) -> float | None:
        """The rate of all spools, as far as known."""
        known = [rate for rate in self.rates if rate is not None]
        return sum(known) if known else None

    @property
    def is_bad(self) -> bool:
        """Whether the node does not answer, spans are lost, or delivery fails."""
        return (
            bool(self.error)
            or any(spool.figures.unwritten for spool in self.spools)
            or any(
                each.refused or each.dropped or (each.waiting and (each.is_failing or not spool.runs or spool.is_stuck))
                for spool in self.spools
                for each in spool.figures.destinations
            )
        )


def take(visit: Visit, timeout: float, before: Sequence[NodeStatus] = ()) -> list[NodeStatus]:
    """The status of each visited node, with rates since the statuses ``before``."""
    answers = visit.call(probe.spools, {"control": True}, timeout=timeout)
    earlier = {each.node: each for each in before}
    return [_status(node, answers[node], earlier.get(node)) for node in visit.nodes]


def as_json(address: str, statuses: Sequence[NodeStatus]) -> dict[str, Any]:
    """The statuses for programs: members are added, and not changed.

    An object with ``version``, ``address`` and ``nodes``, a list of objects: ``name``, ``id``, ``ip``, ``error`` (null
    if the node has answered), ``time_ns``, ``spans_per_second`` (null if unknown), ``set`` (null if unknown: the
    ``version`` of what is set, 0 for nothing, ``enabled``, null as the cluster was started, the version that its
    processes were ``told``, or null, ``silent``, the ids of those that have not answered to it, ``until``, when spans
    are recorded again, in seconds since the epoch or null, and ``variables``, the names of those that are set) and
    ``spools``: ``path``, ``shipper_runs``, ``exporters``, ``spans_per_second``, and ``figures`` as in
    ``_ship/figures.py``.
    """
    return {
        "version": VERSION,
        "address": address,
        "nodes": [
            {
                "name": each.node.name,
                "id": each.node.id,
                "ip": each.node.ip,
                "error": each.error or None,
                "time_ns": each.time_ns,
                "spans_per_second": each.rate,
                "set": each.control._asdict() if each.control is not None else None,
                "spools": [
                    {**spool_as_json(spool), "spans_per_second": rate}
                    for spool, rate in zip(each.spools, each.rates, strict=True)
                ],
            }
            for each in statuses
        ],
    }


def _status(node: Node, answer: Answer, before: NodeStatus | None) -> NodeStatus:
    found: dict[str, Any] = answer.value or {}
    error = answer.problem or str(found.get("error", ""))
    time_ns = int(found.get("time_ns", 0))
    spools = tuple(map(Spool.of, found.get("spools", ())))
    known = {spool.path: spool for spool in before.spools} if before is not None and not before.error else {}
    since = before.time_ns if before is not None else 0
    rates = tuple(_rate(spool, known.get(spool.path), since, time_ns) for spool in spools)
    return NodeStatus(node, error, time_ns, spools, rates, _in_force(found.get("control")))


def _in_force(found: Any) -> InForce | None:
    if not isinstance(found, dict):
        return None
    return InForce(
        int(found.get("version", 0)),
        found.get("enabled"),
        found.get("told"),
        tuple(found.get("silent", ())),
        found.get("until"),
        tuple(found.get("variables", ())),
    )


def _rate(now: Spool, before: Spool | None, since_ns: int, time_ns: int) -> float | None:
    """Spans a second that were recorded between two statuses of a spool."""
    if before is None or now.figures.began_ns != before.figures.began_ns:
        return None
    more = _recorded(now.figures.destinations) - _recorded(before.figures.destinations)
    if not more:
        return 0.0
    # A shipper takes its figures once a second, and stores them only if they have changed.
    began = max(before.figures.updated_ns, since_ns - 10**9)
    ended = now.figures.updated_ns if now.runs else time_ns
    return max(0.0, more * 1e9 / (ended - began)) if ended > began else None


def _recorded(destinations: Sequence[DestinationFigures]) -> int:
    """How many spans have come to the spool, as far as one destination shows."""
    return max(
        (
            each.delivered + each.refused + each.dropped + each.waiting
            for each in destinations
            if each.signal == "traces"
        ),
        default=0,
    )
