"""What was read and what is wrong with it, in the same words for every view: phrases without a full stop."""

from __future__ import annotations

from collections.abc import Iterator

from ray_tracing_hooks._insight.analysis import recorded
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.quality import Quality


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
    yield from recorded.missing(analysis.calls)
    yield recorded.waiting(analysis.calls)
