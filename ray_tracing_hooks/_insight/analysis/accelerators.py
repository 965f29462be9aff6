"""GPUs and other accelerators of a run: how long each was held, and how long its holders ran."""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.calls import EXECUTION, WAITS, Calls
from ray_tracing_hooks._insight.model.utilization import Utilization, of_accelerator

_SAMPLES = 10
"""With less samples it is not known how much was in use: each is of the second before it at most."""


@dataclass
class Accelerator:
    """One accelerator of a node. Times are nanoseconds."""

    node: str
    """Ray's id of the node."""
    name: str
    """As Ray names it: ``GPU:0``."""
    holders: list[str] = field(default_factory=list)
    """The actor classes and functions that held it, in order of their first execution."""
    executions: list[int] = field(default_factory=list)
    """Rows, by start."""
    held: int = 0
    """How long it was held; an actor holds it at least from its creation to the end of its last method."""
    busy: int = 0
    """How long its holders ran, without ``ray.get`` and ``ray.wait`` where waiting is recorded, and without the steps
    at which ranks of Ray Train meet.
    """
    longest_gap: int = 0
    """The longest time in which it was held but no holder ran."""
    used: float | None = None
    """How much of it was in use on average while it was held, as its node was sampled; None if there are no
    ten samples."""

    samples: int = 0
    """How many samples there are of that time."""
    resolution: int = 0
    """The usual time between two of them."""

    @property
    def busy_share(self) -> float:
        return self.busy / self.held if self.held else 0.0


def accelerators(calls: Calls, utilization: Utilization) -> list[Accelerator]:
    """Every accelerator that an execution held, by node and name."""
    found: dict[tuple[str, str], Accelerator] = {}
    table = calls.table
    # All spans of a site hold the same accelerators, and most runs have none.
    held_at = [site.get(names.RAY_ACCELERATOR_IDS) for site in table.sites]
    if not any(held_at):
        return []
    for row, role in enumerate(calls.role):
        held = held_at[table.site[row]]
        if role != EXECUTION or not isinstance(held, list):
            continue
        place = calls.place(row)
        for name in map(str, held):
            accelerator = found.setdefault((place.node, name), Accelerator(place.node, name))
            accelerator.executions.append(row)
            holder = place.actor_class or calls.function_of(row)
            if holder not in accelerator.holders:
                accelerator.holders.append(holder)
    waits = _waits(calls)
    for accelerator in found.values():
        held_in = _describe(accelerator, calls, waits)
        if samples := of_accelerator(utilization, accelerator.node, accelerator.name):
            accelerator.samples, accelerator.resolution = samples.within(held_in), samples.resolution
            if accelerator.samples >= _SAMPLES:
                accelerator.used = samples.mean(held_in)
    return [found[key] for key in sorted(found)]


def _waits(calls: Calls) -> dict[int, list[tuple[int, int]]]:
    """The intervals in which each frame waited, by its row."""
    table = calls.table
    # At a step, a rank of Ray Train waits for the others.
    is_step = [name == names.TRAIN_REPORT or name.startswith(names.TRAIN_COLLECTIVES) for name in table.names]
    found: dict[int, list[tuple[int, int]]] = {}
    for row, role in enumerate(calls.role):
        if role in WAITS or is_step[table.name[row]]:
            found.setdefault(calls.frame[row], []).append((table.start[row], table.end_or_now(row)))
    return found


def _describe(accelerator: Accelerator, calls: Calls, waits: dict[int, list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Add up its times in one sweep over all starts and ends, and return the intervals in which it was held."""
    table = calls.table
    lives: dict[str, list[int]] = {}
    # Time, change in the number of holders, change in the number of running executions.
    changes: list[tuple[int, int, int]] = []
    for row in accelerator.executions:
        start, end = table.start[row], table.end_or_now(row)
        changes += ((start, 0, 1), (end, 0, -1))
        for begun, ended in waits.get(row, ()):
            if (there := min(ended, end)) > (here := max(begun, start)):
                changes += ((here, 0, -1), (there, 0, 1))
        actor = calls.place(row).actor
        if not actor:
            changes += ((start, 1, 0), (end, -1, 0))
        elif actor in lives:
            lives[actor][1] = max(lives[actor][1], end)
        else:
            lives[actor] = [start, end]
    for start, end in lives.values():
        changes += ((start, 1, 0), (end, -1, 0))
    intervals: list[tuple[int, int]] = []
    holders = running = gap = last = 0
    for at, held, ran in sorted(changes):
        if holders > 0 and at > last:
            accelerator.held += at - last
            intervals.append((last, at))
            if running > 0:
                accelerator.busy += at - last
            else:
                gap += at - last
                accelerator.longest_gap = max(accelerator.longest_gap, gap)
        if at > last and (holders <= 0 or running > 0):
            gap = 0
        holders, running, last = holders + held, running + ran, at
    return intervals
