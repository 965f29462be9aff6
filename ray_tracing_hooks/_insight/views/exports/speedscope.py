"""Profiles for speedscope: one of all spans merged by their stacks, and one for each lane over time.

In the merged profile, a stack is a span with its ancestors in any process, and its weight is the span's time while no
span below it ran; waits in ``ray.get`` and similar calls are left out. Times are nanoseconds from the start of the
first span.
https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from ray_tracing_hooks._insight.analysis.flame import callers, pieces
from ray_tracing_hooks._insight.analysis.lanes import by_lane, ends_of, lanes
from ray_tracing_hooks._insight.model.calls import WAITS, role_of
from ray_tracing_hooks._insight.model.clocks import correct
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.processes import places
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.exports.chrome import clocks
from ray_tracing_hooks._insight.views.exports.scene import lane_label, title
from ray_tracing_hooks._insight.views.exports.selection import Source, as_json, encoded
from ray_tracing_hooks._version import __version__

_DEEPEST = 200
"""The greatest depth of stacks in the merged profile, since each is written with all its frames."""

_MANY = 1000


def write(source: Source, out: BinaryIO) -> Sequence[str]:
    """Write all spans; returns notes for the user."""
    table = correct(source.table)
    frames: dict[str, int] = {}
    frame_of = array("L", [frames.setdefault(title(table, row), len(frames)) for row in range(len(table))])
    head = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"ray-tracing-hooks {__version__}",
        "name": "Ray",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name or "(no name)"} for name in frames]},
    }
    out.write(encoded(as_json(head)[:-1] + ',"profiles":[\n'))
    ends = ends_of(table)
    merged, cut = _merged(table, ends, frame_of)
    out.write(encoded(merged))
    out.writelines(encoded(part) for part in _lanes(source, table, ends, frame_of))
    out.write(b"\n]}\n")
    told = ["speedscope shows only names and times, not attributes"]
    if cut:
        told.append(
            f"{cut:,} spans are deeper than {_DEEPEST} levels: the merged profile shows their time at that level"
        )
    return told + clocks(table)


def _lanes(source: Source, table: Table, ends: array[int], frame_of: array[int]) -> Iterator[str]:
    where = places(table)
    found = lanes(table, where, ends)
    origin = table.start[0] if len(table) else 0
    last = max(ends, default=origin) - origin
    for lane, rows in zip(found.lanes, by_lane(table, ends, found), strict=True):
        place = where.places[lane.place]
        name = as_json(f"{lane_label(place, lane.number)} on {place.node_label}")
        yield f',\n{{"type":"evented","name":{name},"unit":"nanoseconds","startValue":0,"endValue":{last},"events":['
        events: list[str] = []
        separator = ""
        stack: list[int] = []
        for row in rows:
            _close(stack, found.depth[row], ends, frame_of, origin, events)
            events.append(f'{{"type":"O","frame":{frame_of[row]},"at":{table.start[row] - origin}}}')
            stack.append(row)
            if len(events) >= _MANY:
                yield separator + ",".join(events)
                separator = ","
                events.clear()
        _close(stack, 0, ends, frame_of, origin, events)
        yield separator + ",".join(events)
        source.on_spans(len(rows))
        yield "]}"


def _close(
    stack: list[int], depth: int, ends: array[int], frame_of: array[int], origin: int, events: list[str]
) -> None:
    while len(stack) > depth:
        closed = stack.pop()
        events.append(f'{{"type":"C","frame":{frame_of[closed]},"at":{ends[closed] - origin}}}')


def _merged(table: Table, ends: array[int], frame_of: array[int]) -> tuple[str, int]:
    """The profile of all stacks, the largest first, and the number of spans that are too deep for it."""
    weights: dict[int, int] = {}
    tree, cut = _Tree(), 0
    node_of = array("q", bytes(8 * len(table)))
    for row, node, is_cut in _nodes(table, frame_of, tree):
        cut += is_cut
        node_of[row] = node
    # As in the page's flame graph: other spans show what they wait for.
    is_wait = [role_of(name) in WAITS for name in table.names]
    found = pieces(as_numpy(table.start), as_numpy(ends), callers(table))
    for row, since, until in zip(*(column.tolist() for column in found), strict=True):
        if not is_wait[table.name[row]]:
            weights[node_of[row]] = weights.get(node_of[row], 0) + until - since
    heaviest = sorted((node for node, weight in weights.items() if weight), key=lambda node: -weights[node])
    profile = {
        "type": "sampled",
        "name": "all spans, merged by stack",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(weights.values()),
        "samples": [tree.stack(node) for node in heaviest],
        "weights": [weights[node] for node in heaviest],
    }
    return as_json(profile), cut


class _Tree:
    """Stacks of frames; stacks with a common prefix share nodes."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], int] = {}
        self._frames: list[int] = []
        self._parents: list[int] = []
        self._depths: list[int] = []

    def node(self, parent: int, frame: int) -> tuple[int, bool]:
        """The node of a frame below ``parent`` (-1 for none), and whether it is the parent, at the depth limit."""
        if parent >= 0 and self._depths[parent] >= _DEEPEST:
            return parent, True
        node = self._nodes.setdefault((parent, frame), len(self._frames))
        if node == len(self._frames):
            self._frames.append(frame)
            self._parents.append(parent)
            self._depths.append(self._depths[parent] + 1 if parent >= 0 else 1)
        return node, False

    def stack(self, node: int) -> list[int]:
        found = []
        while node >= 0:
            found.append(self._frames[node])
            node = self._parents[node]
        return found[::-1]


def _nodes(table: Table, frame_of: array[int], tree: _Tree) -> Iterator[tuple[int, int, bool]]:
    """Each row with its node; parents first, even if by their clocks they start after their children."""
    node_of = array("q", [-1]) * len(table)
    for row in range(len(table)):
        chain = []
        here = row
        while here >= 0 and node_of[here] < 0:
            chain.append(here)
            here = table.parent[here]
        for link in reversed(chain):
            parent = table.parent[link]
            node_of[link], is_cut = tree.node(node_of[parent] if parent >= 0 else -1, frame_of[link])
            yield link, node_of[link], is_cut
