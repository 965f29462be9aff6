"""A GPU that is held, but whose holders do not run for most of that time; or that is hardly in use while they run."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.accelerators import Accelerator
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent

KIND = "idle-accelerator"

_BUSY = 0.5
_COST = 0.2


def find(analysis: Analysis) -> list[Finding]:
    """Accelerators that were idle for more than half of the time that they were held, and for a fifth of the run.

    Where its node was sampled, an accelerator was idle as far as its driver says so: a holder may run without using it.
    A sample is of the last second before it at most, so it takes at least ten to say something about the time between
    them; with fewer, as without any, it is idle while no holder runs.
    """
    wall = analysis.path.wall
    return [
        _finding(each, (1 - _busy_share(each)) * each.held / wall)
        for each in analysis.accelerators
        if wall and _busy_share(each) < _BUSY and (1 - _busy_share(each)) * each.held / wall >= _COST
    ]


def _busy_share(accelerator: Accelerator) -> float:
    return accelerator.busy_share if accelerator.used is None else accelerator.used


def _finding(accelerator: Accelerator, share: float) -> Finding:
    held_by = quoted(accelerator.holders[0])
    if others := len(accelerator.holders) - 1:
        held_by += f" and {count(others, 'other')}"
    busy = f"{duration(accelerator.busy)} ({percent(accelerator.busy_share)})"
    text = f"{accelerator.name} of node {accelerator.node[:8]} was held by {held_by} for {duration(accelerator.held)}, "
    if accelerator.used is None:
        text += f"but its holders ran for only {busy}"
    else:
        text += (
            f"but only {percent(accelerator.used)} of it was in use on average "
            f"({count(accelerator.samples, 'sample')}, one in {duration(accelerator.resolution)}); its holders ran for "
            f"{busy}"
        )
    text += f"; the longest gap was {duration(accelerator.longest_gap)}"
    advice = (
        "prepare the next input before it is needed, use larger batches, or let several tasks or actors share it "
        "(num_gpus below 1)"
    )
    figures: dict[str, float | int | str] = {
        "accelerator": accelerator.name,
        "node": accelerator.node,
        "held_ns": accelerator.held,
        "busy_ns": accelerator.busy,
        "longest_gap_ns": accelerator.longest_gap,
        "executions": len(accelerator.executions),
    }
    if accelerator.used is not None:
        figures |= {"used": accelerator.used, "samples": accelerator.samples}
    title = f"{accelerator.name} is idle"
    return Finding(KIND, text, advice, min(1.0, share), accelerator.executions, figures, title=title)
