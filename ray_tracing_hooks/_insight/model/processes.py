"""Where spans were recorded: the processes, the node of each, its role in Ray, and when workers were created and ready.

The Resource of its spans identifies a process, if this package or another one that knows Ray wrote it. Otherwise the
attributes of the span itself do, as Ray's own tracing writes them. Otherwise the span's parent does, if both have the
same Resource, since a library's span inside a task does not say where it ran.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any, NamedTuple, cast

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.grouped import tops, unique_columns
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.span import CONSUMER, SERVER
from ray_tracing_hooks._insight.model.table import Table

_SHOWN = 8
"""Digits of an id in a label, as in findings."""


class Actor(NamedTuple):
    """An actor that lived in a process."""

    actor_id: str
    class_name: str
    """Without its module."""
    name: str
    """The name that the program gave it, if any."""

    @property
    def label(self) -> str:
        """``Trainer#3f2a91c0``, or ``Trainer "chief"`` if it has a name."""
        return f'{self.class_name} "{self.name}"' if self.name else f"{self.class_name}#{self.actor_id[:_SHOWN]}"


@dataclass(slots=True)
class ProcessPlace:
    """One process, as far as it is known. Strings are empty where nothing is recorded."""

    node: str
    """Ray's id of the node."""
    host: str
    ip: str
    worker: str
    """Ray's id of the worker or driver."""
    pid: str
    process_type: str
    """``driver``, ``worker``, or empty."""
    service: str
    """``service.name`` of the Resource."""
    start_ns: int
    """The start of its first span."""
    actors: list[Actor] = field(default_factory=list)
    """The actors that lived in it. Ray gives each actor its own process, so in a cluster there is at most one."""
    placement_groups: list[str] = field(default_factory=list)
    """The placement groups of its executions, in order of their first execution."""
    serving: str = ""
    """What Ray Serve ran in it: a replica, such as ``Front#kogt``, or ``Serve proxy``."""

    @property
    def node_key(self) -> str:
        """The same for all places on one node."""
        return self.node or self.host or self.ip

    @property
    def node_label(self) -> str:
        """``node 3e83a1f0 (10.0.0.3)``."""
        where = self.ip or self.host
        if not self.node:
            return where or "unknown node"
        return f"node {self.node[:_SHOWN]} ({where})" if where else f"node {self.node[:_SHOWN]}"

    @property
    def label(self) -> str:
        """``driver (pid 17)``, ``Trainer#3f2a91c0 (pid 21)``, ``Front#kogt (pid 23)``, ``worker 9c40b7d2 (pid 20)``."""
        if self.process_type == "driver" and not self.actors:
            what = "driver"
        elif self.serving:
            what = self.serving
        elif self.actors:
            what = self.actors[0].label + (f" +{len(self.actors) - 1}" if len(self.actors) > 1 else "")
        elif self.worker:
            what = f"worker {self.worker[:_SHOWN]}"
        else:
            what = self.service or "process"
        return f"{what} (pid {self.pid})" if self.pid else what


class Places(NamedTuple):
    of: array[int]
    """By row of the table, the index of the place in ``places``."""
    places: list[ProcessPlace]
    """In display order: nodes with a driver first; on each node drivers first; then by first span."""

    def place(self, row: int) -> ProcessPlace:
        return self.places[self.of[row]]


def places(table: Table) -> Places:
    """Where every span of the table was recorded."""
    found = _Found()
    described = [_process(resource) for resource in table.resources]
    resource, site = as_numpy(table.resource), as_numpy(table.site)
    is_whole = np.array([whole for _, whole in described], bool)
    # If a Resource does not describe its process, the site of a span may.
    keys = np.stack([resource, np.where(is_whole[resource], 0, site)]) if len(table) else np.zeros((2, 0), np.int64)
    first, kind = unique_columns(keys)
    place_of = np.full(len(first), _UNKNOWN)
    for number in np.argsort(first).tolist():
        row = int(first[number])
        process, whole = described[table.resource[row]]
        if not whole:
            process = _completed(process, table.sites[table.site[row]])
        if process.worker or process.pid:
            place_of[number] = found.index(process, table.start[row])
    of_row = place_of[kind]
    is_known = of_row != _UNKNOWN
    of = as_array(of_row, "l")
    ran = np.nonzero((as_numpy(table.kind) == CONSUMER) & is_known)[0]
    for row in _of_each_place(of, site, ran):
        _tell(found.places[of[row]], table.sites[table.site[row]])
    for row in _of_each_place(of, site, np.nonzero(_serves(table) & is_known)[0]):
        _tell_serving(found.places[of[row]], table.sites[table.site[row]])
    return _ordered(_inherit(table, of_row, described, found), found.places)


_UNKNOWN = -1


def _of_each_place(of: array[int], site: Any, rows: Any) -> list[int]:
    """The first of these rows of each place and site, in their order."""
    first, _ = unique_columns(np.stack([as_numpy(of)[rows], site[rows]]))
    return cast("list[int]", rows[np.sort(first)].tolist())


def _serves(table: Table) -> Any:
    """For each row whether a replica of Ray Serve ran or started there, or a proxy or replica received a request."""
    kind, runs = as_numpy(table.kind), table.is_named(lambda name: name.endswith(f" {names.SERVE_REPLICA}"))
    return (runs & (kind != SERVER)) | (table.is_ours() & (kind == SERVER))


class _Process(NamedTuple):
    node: str
    worker: str
    pid: str
    host: str
    ip: str
    process_type: str
    service: str
    instance: str

    @property
    def key(self) -> tuple[str, ...]:
        """The same for all descriptions of one process."""
        if self.worker or self.pid:
            return self.node or self.host, self.worker, self.pid
        return self.node or self.host, self.service, self.instance, ""


class _Found:
    def __init__(self) -> None:
        self.places: list[ProcessPlace] = []
        self._by_process: dict[tuple[str, ...], int] = {}

    def index(self, process: _Process, start_ns: int) -> int:
        index = self._by_process.get(process.key)
        if index is None:
            index = self._by_process[process.key] = len(self.places)
            node, worker, pid, host, ip, process_type, service, _ = process
            self.places.append(ProcessPlace(node, host, ip, worker, pid, process_type, service, start_ns))
        return index


def _tell(place: ProcessPlace, execution: Mapping[str, Any]) -> None:
    """Note the actor and placement group of an execution's process, from the attributes of the execution."""
    actor_id = _text(execution.get(names.RAY_ACTOR_ID))
    if actor_id and all(actor.actor_id != actor_id for actor in place.actors):
        class_name = _text(execution.get(names.RAY_ACTOR_CLASS)).rpartition(".")[2]
        place.actors.append(Actor(actor_id, class_name, _text(execution.get(names.RAY_ACTOR_NAME))))
    group = _text(execution.get(names.RAY_PLACEMENT_GROUP_ID))
    if group and group not in place.placement_groups:
        place.placement_groups.append(group)


def _tell_serving(place: ProcessPlace, served: Mapping[str, Any]) -> None:
    """Note the replica that runs in a process, or else that it is a proxy, from a span that :func:`_serves` names."""
    if replica := _text(served.get(names.RAY_SERVE_REPLICA_ID)):
        place.serving = f"{_text(served.get(names.RAY_SERVE_DEPLOYMENT)) or 'replica'}#{replica[:_SHOWN]}"
    else:
        place.serving = place.serving or "Serve proxy"


def _process(resource: Mapping[str, Any]) -> tuple[_Process, bool]:
    """The process that a Resource describes, and whether it identifies the process on its own."""
    node, worker = _text(resource.get(names.RESOURCE_NODE_ID)), _text(resource.get(names.RESOURCE_WORKER_ID))
    addresses = resource.get("host.ip")
    return _Process(
        node=node,
        worker=worker,
        pid=_text(resource.get("process.pid")),
        host=_text(resource.get("host.name")),
        ip=_text(addresses[0] if isinstance(addresses, list | tuple) and addresses else addresses),
        process_type=_text(resource.get(names.RESOURCE_PROCESS_TYPE)),
        service=_text(resource.get("service.name")),
        instance=_text(resource.get("service.instance.id")),
    ), bool(node and worker)


def _completed(process: _Process, attributes: Mapping[str, Any]) -> _Process:
    return process._replace(
        node=process.node or _text(attributes.get(names.RAY_NODE_ID)),
        worker=process.worker or _text(attributes.get(names.RAY_WORKER_ID)),
        pid=process.pid or _text(attributes.get(names.RAY_PID)),
    )


def _text(value: Any) -> str:
    return "" if value is None or isinstance(value, list | dict) else str(value)


def _inherit(table: Table, place_of: Any, described: list[tuple[_Process, bool]], found: _Found) -> array[int]:
    """The places of all rows: one that does not identify a process has that of the nearest row above it with the same
    Resource that does, or else a new one, identified by the Resource alone.
    """
    parent, resource = as_numpy(table.parent), as_numpy(table.resource)
    is_known = place_of != _UNKNOWN
    is_top = is_known | (parent < 0) | (resource[parent] != resource)
    top = tops(np.where(is_top, -1, parent))
    for row in np.nonzero(is_top & ~is_known)[0].tolist():
        place_of[row] = found.index(described[table.resource[row]][0], table.start[row])
    return as_array(place_of[top], "l")


def _ordered(of: array[int], unordered: list[ProcessPlace]) -> Places:
    """The places in display order, and the rows' indices into that order."""
    nodes: dict[str, tuple[bool, int]] = {}
    for place in unordered:
        is_other, start_ns = nodes.get(place.node_key, (True, place.start_ns))
        nodes[place.node_key] = is_other and place.process_type != "driver", min(start_ns, place.start_ns)
    order = sorted(
        range(len(unordered)),
        key=lambda index: (
            nodes[unordered[index].node_key],
            unordered[index].node_key,
            unordered[index].process_type != "driver",
            unordered[index].start_ns,
            index,
        ),
    )
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return Places(as_array(position[as_numpy(of)], "I"), [unordered[index] for index in order])


@dataclass(frozen=True)
class Start:
    """The start of one worker process. Times are nanoseconds since the epoch."""

    created: int
    ready: int
    """When it had connected to Ray."""
    node: str
    processors: int
    """How many processors its node has; 0 if unknown."""


class Workers:
    """The workers that recorded the spans of a table."""

    def __init__(self, table: Table) -> None:
        shifts = table.shifts or [0] * len(table.resources)
        self.of_resource = [_start(resource, shift) for resource, shift in zip(table.resources, shifts, strict=True)]
        """For each resource of the table the start of its worker; None if not recorded."""
        self._of_node: dict[str, list[tuple[int, int]]] = {}
        for index in dict.fromkeys(table.resource):
            if (start := self.of_resource[index]) is not None:
                self._of_node.setdefault(start.node, []).append((start.created, start.ready))
        for node, times in self._of_node.items():
            self._of_node[node] = _most(times)

    def full(self, node: str, start: int, end: int) -> list[tuple[int, int]]:
        """The intervals between ``start`` and ``end`` in which another process may have had to wait to start, in order.

        Ray starts no more at once than the node has CPUs, which are not recorded. Where it starts fewer than half of
        the most that it ever did, others could start too.
        """
        its = self._of_node.get(node, [])
        first = bisect_right(its, start, key=lambda each: each[1])
        last = bisect_left(its, end, key=lambda each: each[0])
        return [(max(begun, start), min(ready, end)) for begun, ready in its[first:last]]


def _most(times: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The intervals in which at least half as many of these are open as ever are."""
    changes = sorted([(begun, 1) for begun, _ in times] + [(ready, -1) for _, ready in times])
    opened = list(accumulate(change for _, change in changes))
    most, found = max(opened), list[tuple[int, int]]()
    for (at, _), (later, _), number in zip(changes, changes[1:], opened, strict=False):
        if 2 * number < most or later == at:
            continue
        if found and found[-1][1] == at:
            found[-1] = found[-1][0], later
        else:
            found.append((at, later))
    return found


def _start(resource: Mapping[str, Any], shift: int) -> Start | None:
    ready, created_text = resource.get(names.RESOURCE_WORKER_READY), resource.get(names.RESOURCE_CREATION_TIME)
    if not isinstance(ready, int) or not isinstance(created_text, str):
        return None
    try:
        created = round(datetime.fromisoformat(created_text.replace("Z", "+00:00")).timestamp() * 1000) * 1_000_000
    except (ValueError, OverflowError):
        return None
    if not 0 < created < ready:
        return None
    processors = resource.get(names.RESOURCE_PROCESSORS)
    node = str(resource.get(names.RESOURCE_NODE_ID) or resource.get("host.name") or "")
    return Start(created + shift, ready + shift, node, processors if isinstance(processors, int) else 0)
