"""Ray Data, which makes no spans by default: what is said of a run that was its work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import by_name, environment, spans_in, with_lean_clusters

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import find, unrecorded
from ray_tracing_hooks._insight.ingest.load import load

PROGRAM = Path(__file__).parents[1] / "insight" / "programs" / "planted.py"


@pytest.mark.slow  # Ray Data takes long to start
def test_what_ray_data_did_is_not_taken_for_code_of_the_driver(tmp_path: Path) -> None:
    """The driver tells that it had imported Ray Data, and the summary that its calls made no spans."""
    paths = [environment()["PYTHONPATH"], os.path.join(sys.prefix, "data")]
    variables = environment(PYTHONPATH=with_lean_clusters(os.pathsep.join(paths)), RAY_TRACING_LOCAL_DIR=str(tmp_path))
    subprocess.run(
        [sys.executable, str(PROGRAM), "data_pipeline"],
        env=variables, cwd=tmp_path, check=True, timeout=300, capture_output=True,
    )  # fmt: skip
    spans = spans_in(tmp_path)
    (driver,) = by_name(spans, "planted.py ray.driver")
    assert driver.attributes[names.RAY_LIBRARIES] == ["data"]
    assert {span.resource[names.RESOURCE_PARTS] for span in spans} == {"actor,data,job,rllib,serve,task,train,tune"}
    analysis = Analysis.corrected(load([str(path) for path in tmp_path.glob("*.jsonl")]))
    (finding,) = [each for each in find(analysis) if each.kind == unrecorded.KIND]
    assert finding.figures["libraries"] == "Ray Data"
    assert not analysis.path.is_exact
