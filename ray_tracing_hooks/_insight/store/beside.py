"""What lies beside the spans of a run and explains them: states of its tasks, and samples of its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._formats.otlp import METRICS
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.queues import state_files
from ray_tracing_hooks._insight.ingest.utilization import lines_between
from ray_tracing_hooks._insight.model.runs import sessions


def beside(folders: Sequence[str], analysis: Analysis) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Files to write beside the spans of a run, from what is in these folders: names and lines."""
    table = analysis.table
    wanted, its_sessions = set(table.ids), sessions(table)
    for path in state_files(folders):
        try:
            said, attempts = task_states.read(path)
            if not said.session or not its_sessions or said.session in its_sessions:
                found = [attempt for attempt in attempts if attempt.task_id in wanted]
                if found:
                    yield task_states.file_name(said.session), task_states.lines(said, found)
        except (OSError, ValueError):
            continue  # whoever analyzed the run has said so
    if samples := list(lines_between(folders, table.start[0], table.now_ns)):
        yield f"{METRICS.name}/samples.jsonl", samples
