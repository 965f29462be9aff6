"""Which spans a page shows of a run that is too large to show them all."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from heapq import nlargest

from ray_tracing_hooks._insight.table import ENDED, Table

_SLOWEST = 100


def sample(table: Table, ends: array[int], most: int, wanted: Iterable[int]) -> list[int]:
    """At most ``most`` rows, in order.

    First those of ``wanted`` (the critical path, evidence of findings), then what failed or has not ended, the slowest
    of each name, and the first and the last span; then every so many of the rest.
    """
    size = len(table)
    if size <= most:
        return list(range(size))
    chosen: dict[int, None] = dict.fromkeys(wanted)
    chosen.update(dict.fromkeys((0, size - 1)))
    by_name: dict[int, list[int]] = {}
    for row in range(size):
        if table.failed(row) or table.state[row] != ENDED:
            chosen[row] = None
        by_name.setdefault(table.name[row], []).append(row)
    start = table.start
    for rows in by_name.values():
        chosen.update(dict.fromkeys(nlargest(_SLOWEST, rows, key=lambda row: ends[row] - start[row])))
    kept = list(chosen)[:most]
    room = most - len(kept)
    if room:
        others = [row for row in range(size) if row not in chosen]
        kept += [others[position * len(others) // room] for position in range(room)]
    return sorted(kept)
