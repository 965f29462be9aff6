"""What lies beside the spans of a run and explains them: states of its tasks, and samples of its nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ray_tracing_hooks import names
from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._formats.otlp import METRICS
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.queues import state_files
from ray_tracing_hooks._insight.ingest.utilization import lines_between
from ray_tracing_hooks._insight.model.runs import sessions
from ray_tracing_hooks._insight.views.redaction import Redaction

_OF_STATES = (names.RESOURCE_SESSION_NAME, names.RAY_JOB_ID, names.RAY_TASK_ID, names.RAY_NAME)
"""The attributes that task states have by other names."""

_KEY = re.compile(rb'"key": *"([^"]*)"')
"""The key of an attribute in a line of OTLP-JSON."""


def beside(folders: Sequence[str], analysis: Analysis, redaction: Redaction) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Files to write beside the spans of a run, from what is in these folders: names and lines.

    None if attributes are not shown, and none of which an attribute is hidden.
    """
    table = analysis.table
    if not redaction.attributes:
        return
    wanted, its_sessions = set(table.ids), sessions(table)
    for path in state_files(folders) if not any(map(redaction.hides, _OF_STATES)) else ():
        try:
            said, attempts = task_states.read(path)
            if not said.session or not its_sessions or said.session in its_sessions:
                found = [attempt for attempt in attempts if attempt.task_id in wanted]
                if found:
                    yield task_states.file_name(said.session), task_states.lines(said, found)
        except (OSError, ValueError):
            continue  # whoever analyzed the run has said so
    samples = list(lines_between(folders, table.start[0], table.now_ns))
    if samples and not any(redaction.hides(key.decode()) for line in samples for key in _KEY.findall(line)):
        yield f"{METRICS.name}/samples.jsonl", samples
