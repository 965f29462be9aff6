"""Submitted jobs are spans of the trace that they are submitted in, and say how they ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import PROGRAMS, await_spans, by_name, run_program, tree, with_extras

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.span import Span

pytestmark = pytest.mark.slow  # a dashboard, which takes long to start


def test_jobs_belong_to_the_trace_that_they_are_submitted_in(dashboard: tuple[str, str], tmp_path: Path) -> None:
    """Submitted in Python and on the command line; each has a span with its status, above that of its driver."""
    program = str(PROGRAMS / "submitted.py")
    run = run_program("../inside/submitting", dashboard[0], program, **with_extras())
    trace_id, span_id, metadata, alone = run.result
    assert metadata == {"traceparent": f"00-{trace_id}-{span_id}-01", "of": "the user"}, "what the user says stays"
    found = await_spans(tmp_path, lambda spans: len(by_name(spans, names.JOB)) == 5)
    spans = [span for span in found if span.trace_id == trace_id]
    check_job_without_a_trace([span for span in found if span.trace_id != trace_id], alone)
    jobs = sorted(by_name(spans, names.JOB), key=lambda span: span.start_ns)
    assert {span.parent_id for span in jobs} == {span_id}
    assert sorted(
        (span.attributes[names.RAY_JOB_STATUS], span.attributes.get(names.EXIT_CODE), span.status_message)
        for span in jobs
    ) == [
        ("FAILED", 3, "the job failed: exit code 3"),
        ("STOPPED", None, ""),
        ("SUCCEEDED", 0, ""),
        ("SUCCEEDED", 0, ""),
    ]
    of_job = {span.span_id: span.attributes[names.RAY_SUBMISSION_ID] for span in jobs}
    roots = by_name(spans, "submitted.py ray.driver")
    assert [of_job[span.parent_id] for span in roots] == [span.attributes[names.RAY_SUBMISSION_ID] for span in roots]
    assert tree(spans) == TREE.strip()


def check_job_without_a_trace(spans: list[Span], submission: str) -> None:
    """Its driver has no root span, so its call is a trace of its own, linked to the job."""
    (job,) = by_name(spans, names.JOB)
    assert (job.attributes[names.RAY_SUBMISSION_ID], job.parent_id) == (submission, "")
    (call,) = by_name(spans, "__main__.double ray.remote")
    assert (call.parent_id, call.trace_id != job.trace_id) == ("", True)
    assert [(link.trace_id, link.span_id) for link in call.links] == [(job.trace_id, job.span_id)]
    assert tree(spans) == TREE_WITHOUT_A_TRACE.strip()


TREE_WITHOUT_A_TRACE = """
__main__.double call
ray.job
"""

TREE = """
ray.job
ray.job
  submitted.py ray.driver
    __main__.double call
ray.job
  submitted.py ray.driver
    __main__.double call
ray.job !job_failed
  submitted.py ray.driver
    __main__.double call
"""
