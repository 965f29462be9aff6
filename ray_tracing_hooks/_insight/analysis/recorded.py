"""How much of a run was recorded and read, and what is wrong with it, in the same words for every view.

Nothing is inferred from the spans of a process that states what it records (``ray.tracing.parts``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ray_tracing_hooks import _libraries, names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import BY_WORKER, UNEXPLAINED, Path, PathStep
from ray_tracing_hooks._insight.analysis.intervals import in_both
from ray_tracing_hooks._insight.analysis.slots import is_loop
from ray_tracing_hooks._insight.analysis.wording import count, duration, listed, percent, plain
from ray_tracing_hooks._insight.model.calls import EVERYWHERE, NOWHERE, PARTLY, WAITS, Calls, is_put
from ray_tracing_hooks._insight.model.quality import Quality

RECORD_WAITS = "RAY_TRACING_RAY=+get,wait"
RECORD_INTERNAL = "RAY_TRACING_INTERNAL=1"
"""The settings that record it next time."""

LIBRARIES = {library.part: library.title for library in _libraries.LIBRARIES if library.hides_calls}
"""Libraries whose internal tasks and actors make no spans if their part of ``RAY_TRACING_RAY`` is off."""

_LITTLE = 0.05
"""The share of the time that may be unexplained without a word."""

_ESTIMATED = "some spans on it have no recorded end"


def waiting(calls: Calls) -> str:
    """Whether it is known what callers waited for, to be used in a sentence."""
    if calls.waiting == EVERYWHERE:
        return "waiting was recorded"
    where = "waiting was recorded in some processes only" if calls.waiting == PARTLY else "waiting was not recorded"
    return f"{where}, so what callers waited for is assumed ({RECORD_WAITS} records it)"


def certainty(calls: Calls, path: Path) -> str:
    """How reliable a path, or the split of the time, is, in one or two sentences."""
    where = "" if calls.waiting == EVERYWHERE else " in every process on the path"
    if path.is_exact and not path.is_estimated and calls.waiting != NOWHERE:
        exact = "Exact" if path.coverage == 1 else "Exact where it is explained"
        clocks = f", as far as the clocks of {path.machines:,} machines agree" if path.machines > 1 else ""
        return f"{exact}{clocks}: waiting was recorded{where}."
    if calls.waiting == EVERYWHERE or (path.is_recorded and calls.waiting != NOWHERE):
        return f"Partly inferred: waiting was recorded{where}, but {listed(list(_doubts(calls, path)))}."
    estimated = [_ESTIMATED] if path.is_estimated else []
    return f"Inferred: {'; '.join([waiting(calls), *missing(calls), *estimated])}."


def bound(calls: Calls, path: Path) -> str:
    """How reliable a critical path is, and what its times say if that is certain, in sentences."""
    if not path.is_exact or calls.waiting == NOWHERE:
        return certainty(calls, path)
    # With less to do before them, calls may have run on other workers: then what held those counts as well.
    same = " and calls ran on the same workers" if any(step.edge == BY_WORKER for step in path.steps) else ""
    return (
        f"{certainty(calls, path)} If the code of a function took no time{same}, the run would be shorter by at most "
        "its time here."
    )


def _doubts(calls: Calls, path: Path) -> Iterator[str]:
    """Why a path is not exact although waiting was recorded."""
    quality = calls.table.quality
    released = max(path.released, key=path.executions.__getitem__, default=-1)
    name = plain(calls.function_of(released)) if released >= 0 else ""
    for applies, doubt in (
        (not path.is_recorded, "not always what it was for"),
        (released >= 0, f"{name} may have waited for other calls of its actor"),
        (path.has_requests, "the driver may have waited for requests to a proxy of Ray Serve"),
        (path.is_cut, "no span of the driver was read"),
        *((True, reason) for reason in missing(calls)),
        (calls.is_selection, "RAY_TRACING_INCLUDE or RAY_TRACING_EXCLUDE leaves out calls"),
        (quality.is_partial, "spans are missing"),
        (quality.clocks, "clocks were wrong"),
        (path.clamped, "some causes end after their effects"),
        (path.is_estimated, _ESTIMATED),
    ):
        if applies:
            yield doubt


def at_once(analysis: Analysis) -> str:
    """How many calls ran at the same time, to be used in a sentence."""
    parallel = analysis.parallelism
    waited = "may have waited for calls of their own" if _assumes_waits(analysis) else "waited in ray.get"
    waiting = f"; {parallel.waiting:.1f} more {waited}" if parallel.waiting >= 0.05 else ""
    return f"{parallel.average:.1f} on average, {parallel.peak:,} at most{waiting}"


def own_time(analysis: Analysis) -> str:
    """What else counts as self time, or does not, to end a sentence about it; empty if there is nothing to say."""
    found = ""
    if any(map(is_loop, analysis.calls.places)):
        found = "; for async methods, including whatever else they await"
    if _assumes_waits(analysis):
        found += "; where waiting was not recorded, the time in which calls of theirs ran counts as waiting"
    if analysis.calls.unsampled:
        found += "; waiting for calls that were not recorded counts as own code, and only recorded calls are counted"
    return found


def _assumes_waits(analysis: Analysis) -> bool:
    return any(each.is_assumed for each in analysis.functions)


def ran(calls: Calls) -> str:
    """Whether waits count as running in figures that leave out the recorded ones, to end a sentence."""
    if calls.waiting == NOWHERE:
        return f"counting waits in ray.get too, since they were not recorded ({RECORD_WAITS} records them)"
    return "not counting waits in ray.get" + (" where they were recorded" if calls.waiting == PARTLY else "")


def missing(calls: Calls) -> list[str]:
    """Which spans are missing although nothing was lost, each reason to be used in a sentence."""
    found = []
    if calls.left_out:
        found.append(f"a rate limit left out the spans of {count(calls.left_out, 'call')}")
    if calls.unsampled:
        found.append("of traces that were not sampled, only spans that failed or were slow were recorded")
    return found


def gaps(analysis: Analysis) -> str:
    """What limits the findings, to follow the statement that there are none; empty if nothing does."""
    found = []
    calls, path, quality = analysis.calls, analysis.path, analysis.table.quality
    if calls.waiting != EVERYWHERE:
        found.append("waiting was not recorded" + (" everywhere" if calls.waiting == PARTLY else ""))
    if path.wall and (unexplained := _unexplained(analysis) / path.wall) > _LITTLE:
        found.append(f"{percent(unexplained)} of the time is unexplained")
    found += missing(calls)
    if analysis.unexecuted:
        found.append(f"{count(analysis.unexecuted, 'call')} without execution")
    if quality.dropped:
        found.append(f"{count(quality.dropped, 'span')} could not be recorded")
    if quality.bad_lines or quality.bad_spans or quality.incomplete_files:
        found.append("not all that was recorded could be read")
    return f" in what was recorded ({listed(found)})" if found else ""


def _unexplained(analysis: Analysis) -> int:
    """How much of the time neither spans on the critical path nor requests explain."""
    if analysis.ends_with_request:
        return 0
    steps = [step for step in analysis.path.steps if step.kind == UNEXPLAINED]
    return analysis.path.kinds[UNEXPLAINED] - with_requests(analysis, steps)


def with_requests(analysis: Analysis, steps: Sequence[PathStep]) -> int:
    """How much of the time of these steps there were requests that a handle of a driver had made, and may wait for."""
    spans, frame = analysis.serve_spans, analysis.calls.frame
    if spans is None:
        return 0
    drivers = set(analysis.calls.drivers())
    made = np.array([row for row in spans.called.tolist() if frame[row] in drivers], np.int64)
    requests = zip(spans.start[made].tolist(), spans.end_of_call(made).tolist(), strict=True)
    return in_both(requests, (step.time for step in steps))


def libraries(calls: Calls) -> list[str]:
    """The Ray libraries that a driver had imported but did not record: their parts in ``RAY_TRACING_RAY``."""
    if calls.internal:
        return []
    table = calls.table
    unrecorded: set[str] = set()
    for driver in calls.drivers():
        used = table.attribute(driver, names.RAY_LIBRARIES) if driver < len(table) else None
        parts = table.resources[calls.resource_of(driver)].get(names.RESOURCE_PARTS)
        recorded = parts.split(",") if isinstance(parts, str) else ()
        if isinstance(used, list):
            unrecorded.update(str(each) for each in used if each not in recorded)
    return [key for key in LIBRARIES if key in unrecorded]


def unseen_objects(analysis: Analysis) -> int:
    """How many of the objects that were waited for came from calls without spans, of Ray or of Ray Serve."""
    calls, found = analysis.calls, set[str]()
    for row in calls.table.objects:
        if calls.role[row] in WAITS and not analysis.served.awaited(row):
            found.update(each for each, call in calls.made_by(row) if call < 0 and not is_put(each))
    return len(found)


def unread(quality: Quality) -> str:
    """What could not be read, and the first reason; empty if everything was read."""
    parts = []
    if quality.bad_lines:
        parts.append(f"{count(quality.bad_lines, 'bad line')} skipped")
    if quality.bad_spans:
        parts.append(f"{count(quality.bad_spans, 'bad span')} skipped")
    if quality.incomplete_files:
        parts.append(count(quality.incomplete_files, "file or folder", "files or folders") + " not completely read")
    first = [f" (the first: {each})" for each in quality.problems[:1]]
    return "".join([", ".join(parts), *first]) if parts else ""


INTERRUPTED = "span interrupted by the death of its process", "spans interrupted by the death of their process"
UNENDED = "span without an end", "spans without an end"
CUT = (
    "no span of the driver, so the run may have begun before these spans, and may go on (while it runs, the spool has "
    "that span; with RAY_TRACING_ROOT_SPAN=0 there is none)"
)
STILL_RUNNING = "span still running", "spans still running"


def of_all(quality: Quality) -> Iterator[str]:
    """What is wrong with all that was read."""
    if problems := unread(quality):
        yield problems
    for number, one, many in (
        (quality.dropped, "span could not be recorded", "spans could not be recorded"),
        (
            quality.truncated,
            "span without attributes, events or links that its limits dropped",
            "spans without attributes, events or links that their limits dropped",
        ),
        (quality.lost - quality.unended, *INTERRUPTED),
        (quality.unended, *UNENDED),
        (quality.running, *STILL_RUNNING),
        (quality.lost_parents, "span without the parent it names", "spans without the parent they name"),
        (
            quality.of_open_drivers,
            "span whose driver has not ended, or is in another file",
            "spans whose driver has not ended, or is in another file",
        ),
        (
            quality.continuing,
            "request continues a trace of another system",
            "requests continue traces of other systems",
        ),
        (quality.circles, "cycle of parents, broken", "cycles of parents, broken"),
        (quality.negative, "span that ends before it starts", "spans that end before they start"),
        (quality.duplicates, "duplicate", "duplicates"),
    ):
        if number:
            yield count(number, one, many)


def of_run(analysis: Analysis) -> Iterator[str]:
    """What is wrong with the spans of a run, and whether waiting was recorded."""
    if analysis.path.is_cut:
        yield CUT
    if analysis.unexecuted:
        yield count(analysis.unexecuted, "call without execution", "calls without execution")
    for machine, shift in analysis.table.quality.clocks.items():
        yield f"the clock of {machine} is {duration(abs(shift))} {'ahead' if shift < 0 else 'behind'}, corrected"
    if analysis.path.clamped:
        yield f"{duration(analysis.path.clamped)} of causes after their effects"
    yield from missing(analysis.calls)
    yield waiting(analysis.calls)
