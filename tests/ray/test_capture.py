"""``ray_tracing_hooks.testing``: the spans of a block, in users' own tests."""

from __future__ import annotations

import pytest
from conftest import Cluster
from support import run_program

from ray_tracing_hooks import _startup
from ray_tracing_hooks._safety.guard import TracingError
from ray_tracing_hooks.testing import capture

PROGRAM = "../inside/capturing"
TREE = """
__main__.outer ray.remote
  __main__.outer ray.remote_worker
    __main__.double ray.remote
      __main__.double ray.remote_worker
        multiply
__main__.fails ray.remote
  __main__.fails ray.remote_worker ERROR KeyError
"""


RUNNING = ["__main__.held ray.remote_worker RUNNING", "Gate.pass_through ray.remote_worker RUNNING"]


def test_the_spans_of_a_block_and_of_what_it_calls(cluster: Cluster) -> None:
    """Those and no others, in the order in which they began, whether they are delivered, or have ended, or not."""
    run = run_program(PROGRAM, RTH_ADDRESS=cluster.address, RAY_TRACING_LOCAL_DIR=str(cluster.spans))
    assert run.result == [TREE.strip().splitlines(), 1, "", [3, 9], RUNNING, ["ended"]]


def test_without_local_files_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_startup, "folders", lambda: ("spool", None))
    with pytest.raises(TracingError, match="nothing can be captured: this process writes no local files"), capture():
        pass


def test_where_nothing_is_sampled_it_says_so(cluster: Cluster) -> None:
    run = run_program(
        PROGRAM,
        check=False,
        RTH_ADDRESS=cluster.address,
        RAY_TRACING_LOCAL_DIR=str(cluster.spans),
        OTEL_TRACES_SAMPLER="always_off",
    )
    assert run.returncode
    assert "TracingError: nothing can be captured: this trace is not sampled" in run.stderr
    (line,) = [line for line in run.stderr.splitlines() if "ray_tracing_hooks: " in line]
    assert line.endswith("this driver records no spans, since OTEL_TRACES_SAMPLER samples none")


def test_a_process_that_is_not_traced_is_told_how_to_be() -> None:
    with pytest.raises(TracingError, match="this process is not traced; connect to Ray"), capture():
        pass
