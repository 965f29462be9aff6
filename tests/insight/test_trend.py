"""``ray-tracing-hooks trend``: a function over runs, and from which run on it changed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from hand_made import HandMade

from ray_tracing_hooks import names
from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.comparison import LEAST_RUNS, trend

# Not imported here: each process that collects the tests would take a second for it.
pytestmark = pytest.mark.skipif(not find_spec("ruptures"), reason="needs ruptures")


def run_of(took: float, at: float = 0, job: int = 1, program: str = "job.py") -> HandMade:
    """A run that calls ``f`` for these milliseconds, once it has begun ``at`` a time."""
    run = HandMade()
    common = {names.RAY_JOB_ID: f"{job:02x}000000"}
    driver = run.span(f"{program} ray.driver", at, at + took + 10, trace=job, attributes=common)
    run.run(run.submit(driver, "f", at + 1), at + 2, at + 2 + took)
    for span in run.spans:
        span.trace_id = f"{job:032x}"
        span.attributes |= common
    return run


def shifts(times: Sequence[float], function: str = "f") -> list[int]:
    return [each.point for each in trend([Analysis(run_of(each).table()) for each in times], function).shifts]


STEADY = [20.0, 20.4, 19.7, 20.1, 19.9, 20.3]


@pytest.mark.parametrize("function", ["f", ""])
def test_the_run_from_which_on_a_function_is_slower_is_found(function: str) -> None:
    assert shifts(STEADY + [each * 1.3 for each in STEADY], function) == [len(STEADY)]


@pytest.mark.parametrize(
    "times",
    [
        STEADY * 2,
        [*STEADY, 90.0, *STEADY],
        STEADY + [each * 1.03 for each in STEADY],
        ([20.0] * 4 + [30.0] * 4),
    ],
    ids=["equal", "one slow run", "little", "few runs"],
)
def test_what_is_no_change_of_the_function_is_not_found(times: list[float]) -> None:
    assert shifts(times) == []


def test_series_of_equal_runs_seldom_have_a_change() -> None:
    chance = random.Random(1)
    found = [shifts([20 * chance.lognormvariate(0, 0.1) for _ in range(LEAST_RUNS)]) for _ in range(50)]
    assert sum(map(bool, found)) <= 2


def test_the_trend_of_the_runs_in_a_folder(tmp_path: Path) -> None:
    """Of the program that ran last, the newest runs, the oldest of these first."""
    times = [*STEADY, *(each * 2 for each in STEADY)]
    runs = [run_of(each, 1000 * (job + 1), job + 1) for job, each in enumerate(times)]
    runs.append(run_of(500, 10, 99, "other.py"))
    path = tmp_path / "spans.jsonl"
    path.write_bytes(b"".join(run.as_json_lines() for run in runs))

    def shown(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, ["trend", str(path), *arguments], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    lines = shown("--function", "f").splitlines()
    assert lines[0] == "f: the self time of a call in 12 runs of job.py"
    assert len(lines) == 14
    assert [line.endswith("x2.00 from here on") for line in lines[2:]].index(True) == len(STEADY)
    document = json.loads(shown("--json"))
    assert document["function"] is None
    assert [each["job"] for each in document["runs"]] == [f"{job:02x}000000" for job in range(1, 13)]
    assert [each["run"] for each in document["shifts"]] == [len(STEADY)]
    assert json.loads(shown("--json", "--last", "5"))["shifts"] is None
    assert "With fewer than 10 runs" in shown("--last", "5")
    assert "is named 'g' (--function)" in shown("--function", "g", code=1)


def test_runs_that_are_left_out_are_said(tmp_path: Path) -> None:
    """Those that lack the function, and for the duration those without a known end."""
    whole, other = (run_of(20, 1000 * job, job) for job in (1, 2))
    for span in other.spans:
        span.name = span.name.replace("f ", "g ")
        span.attributes = {key: "g" if value == "f" else value for key, value in span.attributes.items()}
    path = tmp_path / "spans.jsonl"
    path.write_bytes(b"".join(run.as_json_lines() for run in (whole, other)))
    result = CliRunner().invoke(main, ["trend", str(path), "--function", "f"], catch_exceptions=False)
    assert " Left out: 1 run without a call of it." in result.stdout.splitlines()
    running, _ = HandMade.driven(None)
    cut = run_of(20)
    cut.spans = [each for each in cut.spans if each.parent_id]
    tables = running.table(now=100), whole.table(), cut.table()
    found = trend([Analysis(each) for each in tables])
    assert (len(found.points), found.left_out) == (1, 2)
    path.write_bytes(cut.as_json_lines())
    result = CliRunner().invoke(main, ["trend", str(path)], catch_exceptions=False)
    assert (result.exit_code, "has a known end" in result.stderr) == (1, True)
