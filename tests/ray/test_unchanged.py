"""A program does not notice that it is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Cluster, start_head, stop_head
from support import PROGRAMS, run_program


@pytest.fixture(scope="module")
def untraced(short_tmp: Callable[[], Path]) -> Iterator[str]:
    """The address of a cluster without hook."""
    head, address = start_head(short_tmp())
    yield address
    stop_head(head)


@pytest.mark.parametrize("program", ["tasks", "actors", "generators", "errors", "pickles"])
def test_results_errors_signatures_and_pickles_are_the_same(program: str, cluster: Cluster, untraced: str) -> None:
    """Each program says the same about itself on a traced and on an untraced cluster."""
    traced = cluster.once(program)
    plain = run_program(program, RTH_ADDRESS=untraced)
    assert traced.result == plain.result
    assert warnings_of(traced.stderr) == warnings_of(plain.stderr)


def warnings_of(stderr: str) -> list[str]:
    return sorted(line for line in stderr.splitlines() if "Warning" in line)


def test_an_actor_that_rays_own_tracing_breaks_works(cluster: Cluster) -> None:
    """Ray's own hook makes a call to a static, generator or async generator method fail, and this one does not."""
    assert cluster.once("generators").result[6:10] == [[0, 1, 2], [1, 2], [["x"]], 4]
    native = run_program(
        "generators", check=False, RTH_HOOK="ray.util.tracing.setup_local_tmp_tracing:setup_tracing", timeout=120
    )
    assert "_ray_trace_ctx" in native.stderr, "the trouble that this test is about is gone from Ray"


def test_programs_know_nothing_of_the_package() -> None:
    """What is run to prove the point contains no trace of us."""
    for path in PROGRAMS.glob("*.py"):
        assert "ray_tracing_hooks" not in path.read_text(), path


def test_every_patch_can_be_taken_out_again(tmp_path: Path) -> None:
    """Wrapped by the hook, not twice by a second call, put back by `stop`; pickles are the same."""
    run = run_program("../inside/unpatch", RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"))
    assert run.result["results"] == [2, 1, 2, 3]
    assert run.result["listed"], "the list of targets in the test is the list of patches"
    targets = run.result["wrapped"]
    assert len(targets) == 14
    assert run.result["not doubled"] == targets
    assert run.result["unwrapped"] == targets
    assert run.result["same pickles"] == [True] * 5


def test_a_driver_that_shuts_down_and_goes_untraced_is_left_alone(cluster: Cluster, untraced: str) -> None:
    """Traced, then untraced, then traced again in one process: each part works, only the traced ones leave spans."""
    run = cluster.run("twice", untraced, cluster.address)
    assert run.result == [[1, 2], [1, 2], [1, 2]]
    names = [span.name for span in run.spans]
    assert names.count("__main__.double ray.remote") == 1, "the newest trace is the third part's"
