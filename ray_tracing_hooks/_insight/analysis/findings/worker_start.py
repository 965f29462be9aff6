"""Worker processes whose start the run waits for."""

from __future__ import annotations

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import STARTING
from ray_tracing_hooks._insight.analysis.findings import large_arguments, training_start
from ray_tracing_hooks._insight.analysis.findings.finding import Finding
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.worker_starts import Start, Workers

KIND = "worker-start"

_COST = 0.1
_LEAST = 1_000_000_000


def find(analysis: Analysis) -> list[Finding]:
    """The start of workers, if the run waited for it at least a second and a tenth of its time; one finding for all.

    It measures the time on the critical path in which everything else was ready, but a worker process was not. That
    needs the times of creation and readiness of workers, which their resources have. The time in which the driver
    submitted large arguments or functions meanwhile belongs to those: workers start slowly because of them. So does the
    slow start of a training to its finding.
    """
    path = analysis.path
    cost = path.kinds[STARTING] - large_arguments.starting_meanwhile(analysis)
    cost -= training_start.starting_meanwhile(analysis)
    if cost < _LEAST or cost / path.wall < _COST:
        return []
    found = Workers(analysis.table).of_resource
    used = dict.fromkeys(analysis.table.resource)
    started = [start for index in used if (start := found[index]) is not None and start.ready > path.start]
    at_once, processors = max(_at_once(started, node) for node in {start.node for start in started})
    each = percentile(sorted(start.ready - start.created for start in started), 0.5)
    of = f" on a node with {count(processors, 'processor')}" if processors else ""
    text = (
        f"{count(len(started), 'worker')} started while it ran, up to {at_once:,} at once{of}, and took "
        f"{duration(each)} (median) until they were ready for work"
    )
    steps = sorted((step for step in path.steps if step.kind == STARTING), key=lambda step: step.start - step.end)
    figures: dict[str, float | int | str] = {
        "workers": len(started),
        "at_once": at_once,
        "processors": processors,
        "median_start_ns": each,
        "waited_ns": cost,
    }
    rows = list(dict.fromkeys(step.row for step in steps))
    title = "Starting worker processes"
    return [Finding(KIND, text, _advice(at_once, processors), cost / path.wall, rows, figures, title=title)]


def _advice(at_once: int, processors: int) -> str:
    if processors and at_once > processors:
        return "start fewer at once, since they share the processors: fewer actors that do more each"
    return "reuse workers and actors, and create actors before they are needed"


def _at_once(started: list[Start], node: str) -> tuple[int, int]:
    """The most processes of a node that were starting at the same time, and its number of processors."""
    here = [start for start in started if start.node == node]
    changes = sorted([(start.created, 1) for start in here] + [(start.ready, -1) for start in here])
    number = most = 0
    for _, change in changes:
        number += change
        most = max(most, number)
    return most, max(start.processors for start in here)
