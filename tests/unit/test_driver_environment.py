"""What is recorded of a driver's environment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ray_tracing_hooks import jobs, names
from ray_tracing_hooks._ray.environment import describe


def of_job(config: object) -> dict[str, str]:
    return {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(config)}


def test_the_driver_of_a_submitted_job_knows_its_submission() -> None:
    told = describe(of_job({"runtime_env": {}, "metadata": {"job_submission_id": "raysubmit_1"}}), "-c", "space")
    assert told == {names.RAY_ENTRYPOINT: "-c", names.RAY_NAMESPACE: "space", names.RAY_SUBMISSION_ID: "raysubmit_1"}


@pytest.mark.parametrize(
    "environ",
    [{}, of_job({}), of_job([]), of_job({"metadata": {"job_submission_id": 1}}), {"RAY_JOB_CONFIG_JSON_ENV_VAR": "{"}],
)
def test_any_other_driver_has_none(environ: dict[str, str]) -> None:
    assert describe(environ, __file__, "") == {names.RAY_ENTRYPOINT: __file__}


@pytest.mark.parametrize("metadata", [None, {}, (), {"traceparent": "mine", "a": "b"}, [("a", "b")], "text", 5])
def test_a_job_has_the_context_in_its_metadata_if_that_is_any(metadata: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no mapping is passed on as it is: Ray's own error says so."""
    context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    monkeypatch.setenv("TRACEPARENT", context)
    submitted = jobs._submit_job(lambda **kwargs: kwargs["metadata"])(metadata=metadata)
    is_mapping = not metadata or isinstance(metadata, dict)
    assert submitted == ({"traceparent": context, **(metadata or {})} if is_mapping else metadata)
