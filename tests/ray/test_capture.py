"""``ray_tracing_hooks.testing``: the spans of a block, in users' own tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Cluster
from support import HOOK, run_program

from ray_tracing_hooks._errors import TracingError
from ray_tracing_hooks.testing import capture

TREE = """
__main__.outer ray.remote
  __main__.outer ray.remote_worker
    __main__.double ray.remote
      __main__.double ray.remote_worker
        multiply
__main__.fails ray.remote
  __main__.fails ray.remote_worker ERROR KeyError
"""


def test_the_spans_of_a_block_and_of_what_it_calls(cluster: Cluster) -> None:
    """Those and no others, in the order in which they began, whether they are delivered by then or not."""
    run = cluster.once("capturing")
    assert run.result == [TREE.strip().splitlines(), 1, "", [3, 9], "done"]


@pytest.mark.parametrize(
    ("hook", "sampler", "said"),
    [
        ("ray_tracing_hooks.otlp:setup", "", "this process writes no local files"),
        (HOOK, "always_off", "the sampler has decided"),
    ],
    ids=["no local files", "not sampled"],
)
def test_what_cannot_be_captured_is_said(hook: str, sampler: str, said: str, tmp_path: Path) -> None:
    run = run_program(
        "capturing",
        check=False,
        RTH_HOOK=hook,
        OTEL_TRACES_SAMPLER=sampler,
        RAY_TRACING_LOCAL_DIR=str(tmp_path),
        RAY_TRACING_FLUSH_TIMEOUT="0",
    )
    assert run.returncode
    assert f"TracingError: nothing can be captured: {said}" in run.stderr


def test_a_process_that_is_not_traced_is_told_how_to_be() -> None:
    with pytest.raises(TracingError, match="this process is not traced; connect to Ray"), capture():
        pass
