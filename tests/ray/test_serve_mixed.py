"""Requests to Ray Serve between processes that are traced and processes that are not work, whatever is lost of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cluster, start_head, stop_head
from support import HOOK, by_name, run_program, spans_in, tree, with_extras

pytestmark = pytest.mark.slow  # deployments with environments of their own, which take long to start

ANSWERS = [20, [200, "[30,[0,1]]"]]
BY_HTTP = b"mixed by http".hex().zfill(32)


def test_callers_and_replicas_that_are_not_traced_among_others_that_are(serving: Cluster, tmp_path: Path) -> None:
    """The driver is not, and in the replica of the deployment between the hook fails."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['ray_tracing_hooks._record.recorder'] = None\n")
    run = run_program(
        "serve_mixed",
        *("", str(tmp_path)),
        RTH_ADDRESS=serving.address,
        RAY_TRACING_LOCAL_DIR=str(serving.spans),
        OTEL_SDK_DISABLED="true",
        **with_extras(),
    )
    assert run.result == ANSWERS
    spans = spans_in(serving.spans)
    assert tree([span for span in spans if span.trace_id == BY_HTTP]) == (
        "GET /mixed\n"
        "  First.__call__ serve.remote\n"
        "    First.__call__ serve.replica\n"
        "      Between.items serve.remote\n"
        "      mixed call 2\n"
        "        Between.add serve.remote"
    )
    assert not [span for span in spans if span.name.startswith("Between.") and span.name.endswith(" serve.replica")]
    for user, top in {"mixed call 1": "First.call serve.replica", "mixed add 1": "Last.add serve.replica"}.items():
        (span,) = by_name(spans, user)
        (root,) = (each for each in spans if each.trace_id == span.trace_id and not each.parent_id)
        assert (root.name, root.span_id) == (top, span.parent_id), "what is not told of a trace begins one"


@pytest.mark.parametrize("parts", ["none", "task,actor"])
def test_callers_that_do_not_trace_serve_call_deployments_that_are_traced(serving: Cluster, parts: str) -> None:
    """By the settings of the driver, and of the deployment between. The context that they send confuses no receiver."""
    run = serving.run(
        "serve_mixed", "", "", RAY_TRACING_RAY="task,actor", BETWEEN=json.dumps({"RAY_TRACING_RAY": parts})
    )
    assert run.result == ANSWERS
    spans = spans_in(serving.spans)
    assert not [span for span in spans if span.name.startswith("Between.") and span.name.endswith(" serve.replica")]
    assert by_name(spans, "Last.add serve.replica")


def test_a_replica_whose_environment_lacks_the_package_does_not_start(serving: Cluster, tmp_path: Path) -> None:
    """Ray ends its worker, since that cannot import the hook, and Serve says that the application has failed."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['ray_tracing_hooks'] = None\n")
    run = serving.run("serve_mixed", "", str(tmp_path))
    assert run.result.startswith("Deploying application mixed failed")


def test_a_traced_driver_calls_the_deployments_of_an_untraced_cluster(short_tmp: Callable[[], Path]) -> None:
    """Its own spans are there; replicas of another hook's cluster understand nothing of what it sends."""
    folder = short_tmp()
    variables = {**with_extras(), "RAY_TRACING_LOCAL_DIR": str(folder / "spans")}
    head, address = start_head(folder, "--tracing-startup-hook=mixed_hook:setup", **variables)
    try:
        run = run_program("serve_mixed", HOOK, "", RTH_ADDRESS=address, **variables)
    finally:
        stop_head(head)
    assert run.result == ANSWERS
    (root,) = by_name(spans_in(folder / "spans"), "by handle")
    spans = [span for span in spans_in(folder / "spans") if span.trace_id == root.trace_id]
    assert [span.name for span in spans if span.parent_id == root.span_id] == ["First.call serve.remote"]
    assert not [span for span in spans if span.name.endswith(" serve.replica")]
