"""A GPU that is held, but whose holders do not run for most of that time."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.accelerators import Accelerator
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent

KIND = "idle-accelerator"

_BUSY = 0.5
_COST = 0.2


def find(analysis: Analysis) -> list[Finding]:
    """Accelerators that were idle for more than half of the time that they were held, and for a fifth of the run."""
    wall = analysis.path.wall
    return [
        _finding(each, (each.held - each.busy) / wall)
        for each in analysis.accelerators
        if wall and each.busy_share < _BUSY and (each.held - each.busy) / wall >= _COST
    ]


def _finding(accelerator: Accelerator, share: float) -> Finding:
    held_by = quoted(accelerator.holders[0])
    if others := len(accelerator.holders) - 1:
        held_by += f" and {count(others, 'other')}"
    busy = f"{duration(accelerator.busy)} ({percent(accelerator.busy_share)})"
    text = (
        f"{accelerator.name} of node {accelerator.node[:8]} was held by {held_by} for {duration(accelerator.held)}, "
        f"but its holders ran for only {busy}; the longest gap was {duration(accelerator.longest_gap)}"
    )
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
    return Finding(KIND, text, advice, min(1.0, share), accelerator.executions, figures)
