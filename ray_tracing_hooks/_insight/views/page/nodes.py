"""The nodes, processes and accelerators of the page, and how much of each node was in use, as far as it was sampled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ray_tracing_hooks._insight.analysis.actors import Accelerator
from ray_tracing_hooks._insight.model.processes import Places, ProcessPlace
from ray_tracing_hooks._insight.model.utilization import Utilization
from ray_tracing_hooks._insight.views.page.pack import LONGEST_NAME, truncated

_MOST_HOLDERS = 25
_MOST_LANES = 200
_MOST_PIECES = 100_000
"""In all lanes; more are averaged. One takes about 8 bytes in the page."""

_LEAST_PIECES = 100
_LONGEST_LANE = 100


def places(found: Places, accelerators: Iterable[Accelerator]) -> dict[str, Any]:
    nodes: dict[str, int] = {}
    described = []
    of_node: list[dict[str, Any]] = []
    held: dict[str, list[dict[str, Any]]] = {}
    for each in accelerators:
        held.setdefault(each.node, []).append(_accelerator(each))
    for place in found.places:
        if place.node_key not in nodes:
            nodes[place.node_key] = len(nodes)
            detail = place.host if place.ip and place.host else ""
            of_node.append({"label": place.node_label, "detail": detail, "accelerators": held.get(place.node, [])})
        described.append(_place(place, nodes[place.node_key]))
    return {"places": described, "nodes": of_node}


def _accelerator(accelerator: Accelerator) -> dict[str, Any]:
    return {
        "label": truncated(accelerator.name, LONGEST_NAME),
        "held_by": [truncated(holder, LONGEST_NAME) for holder in accelerator.holders[:_MOST_HOLDERS]],
        "held": accelerator.held,
        "busy": accelerator.busy,
        "gap": accelerator.longest_gap,
        "used": accelerator.used,
    }


def _place(place: ProcessPlace, node: int) -> dict[str, Any]:
    detail = [f"pid {place.pid}"] if place.pid else []
    if (place.actors or place.serving) and place.worker:
        detail.append(f"worker {place.worker[:8]}")
    elif place.service and not place.worker:
        detail.append(place.service)
    facts = {"Process": place.pid, "Worker": place.worker, "Node": place.node, "Host": place.host, "Address": place.ip}
    for actor in place.actors:
        facts["Actor"] = f"{actor.class_name} {actor.actor_id}"
    return {
        "label": truncated(place.label.removesuffix(f" (pid {place.pid})"), LONGEST_NAME),
        "detail": truncated(" · ".join(detail), LONGEST_NAME),
        "node": node,
        "group": place.placement_groups[0] if place.placement_groups else "",
        "kind": "actor" if place.actors else "driver" if place.process_type == "driver" else "worker",
        "facts": {key: value for key, value in facts.items() if value},
    }


def utilization(found: Utilization, where: Places, begin: int, end: int) -> dict[str, Any]:
    """The lanes of the nodes that the run used: GPUs of each node first."""
    nodes = {place.node: place.node_label for place in where.places if place.node}
    used = {each: series for each, series in found.items() if each.node in nodes}
    most = max(_LEAST_PIECES, _MOST_PIECES // (min(len(used), _MOST_LANES) or 1))
    lanes: list[dict[str, Any]] = []
    for each, series in used.items():
        pieces = [piece for piece in series.pieces() if piece[1] > begin and piece[0] < end]
        if pieces and len(lanes) < _MOST_LANES:
            lanes.append(_lane(truncated(each.label, _LONGEST_LANE), nodes[each.node], pieces, begin, most))
    return {"utilization": lanes}


def _lane(label: str, node: str, pieces: list[tuple[int, int, float]], begin: int, most: int) -> dict[str, Any]:
    drawn = list(_averaged(pieces, -(-len(pieces) // most)))
    whole = sum(end - start for start, end, _ in pieces)
    return {
        "label": label,
        "node": node,
        "mean": round(sum((end - start) * value for start, end, value in pieces) / whole, 4),
        "most": round(max(value for _, _, value in pieces), 4),
        # Whole milliseconds and thousandths are shorter.
        "begins": [(start - begin) // 1_000_000 for start, _, _ in drawn],
        "ends": [(end - begin) // 1_000_000 for _, end, _ in drawn],
        "values": [round(1000 * value) for _, _, value in drawn],
    }


def _averaged(pieces: list[tuple[int, int, float]], size: int) -> Iterator[tuple[int, int, float]]:
    """Of each so many consecutive pieces one, as long as there is no gap between them."""
    group: list[tuple[int, int, float]] = []
    for piece in pieces:
        if group and (len(group) == size or piece[0] != group[-1][1]):
            yield _mean(group)
            group = []
        group.append(piece)
    if group:
        yield _mean(group)


def _mean(group: list[tuple[int, int, float]]) -> tuple[int, int, float]:
    whole = group[-1][1] - group[0][0]
    return group[0][0], group[-1][1], sum((end - start) * value for start, end, value in group) / whole
