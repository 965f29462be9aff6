"""What is recorded of a driver's environment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import context as context_api
from opentelemetry.context import Context
from stand_ins import tracing_of

from ray_tracing_hooks import jobs, names
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._ray.cluster import Cluster
from ray_tracing_hooks._ray.driver import DriverTrace, program
from ray_tracing_hooks._ray.jobs import describe_driver
from ray_tracing_hooks._ray.process import DRIVER
from ray_tracing_hooks._ray.tracing import CallContext
from ray_tracing_hooks._safety.patching import Patches
from ray_tracing_hooks._settings.table import Settings


def of_job(config: object) -> dict[str, str]:
    return {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(config)}


def test_the_driver_of_a_submitted_job_knows_its_submission() -> None:
    told = describe_driver(of_job({"runtime_env": {}, "metadata": {"job_submission_id": "raysubmit_1"}}), "-c", "space")
    assert told == {names.RAY_ENTRYPOINT: "-c", names.RAY_NAMESPACE: "space", names.RAY_SUBMISSION_ID: "raysubmit_1"}


@pytest.mark.parametrize(
    "environ",
    [{}, of_job({}), of_job([]), of_job({"metadata": {"job_submission_id": 1}}), {"RAY_JOB_CONFIG_JSON_ENV_VAR": "{"}],
)
def test_any_other_driver_has_none(environ: dict[str, str]) -> None:
    assert describe_driver(environ, __file__, "") == {names.RAY_ENTRYPOINT: __file__}


@pytest.mark.parametrize("metadata", [None, {}, (), {"traceparent": "mine", "a": "b"}, [("a", "b")], "text", 5])
def test_a_job_has_the_context_in_its_metadata_if_that_is_any(metadata: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no mapping is passed on as it is: Ray's own error says so."""
    context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    monkeypatch.setenv("TRACEPARENT", context)
    submitted = jobs._submit_job(lambda **kwargs: kwargs["metadata"])(metadata=metadata)
    is_mapping = not metadata or isinstance(metadata, dict)
    assert submitted == ({"traceparent": context, **(metadata or {})} if is_mapping else metadata)


CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SUBMITTED = {"job_submission_id": "raysubmit_1"}


@pytest.mark.parametrize(
    ("config", "is_parent"),
    [
        ({"metadata": SUBMITTED}, False),
        ({"metadata": SUBMITTED, "runtime_env": {"env_vars": {"TRACEPARENT": "wrong"}}}, False),
        ({"metadata": {**SUBMITTED, "traceparent": CONTEXT}}, True),
        ({"metadata": SUBMITTED, "runtime_env": {"env_vars": {"TRACEPARENT": CONTEXT}}}, True),
        ({}, True),
    ],
    ids=["job", "job with nonsense", "trace in the metadata", "trace in the variables", "no job"],
)
def test_without_a_root_span_calls_of_a_job_are_traces_of_their_own(
    config: dict[str, Any], *, is_parent: bool, tmp_path: Path
) -> None:
    """Unless its user has passed a trace to it. With tracing of jobs, TRACEPARENT names the span of the job."""
    active = tracing_of(tmp_path, DRIVER)
    before = context_api.attach(Context())
    try:
        driver = DriverTrace(active, Cluster(), Settings(root_span=False))
        driver.begin_where_it_begins({**of_job(config), "TRACEPARENT": CONTEXT, "BAGGAGE": "a=b"}, Patches())
        assert driver.root is None
        # The last is that of another thread, where nothing is attached.
        calls = [CallContext(active.calls, each) for each in (*[context_api.get_current()] * 2, Context())]
        assert "a=b" in (calls[0].headers or {}).values()
    finally:
        context_api.detach(before)
    traces = {call.trace_id.hex() for call in calls}
    spans = [decode_span(call.before + b"span_ids" + call.after + call.of_caller) for call in calls]
    if is_parent:
        assert traces == {CONTEXT[3:35]}
        assert {(span.parent_span_id.hex(), len(span.links)) for span in spans} == {(CONTEXT[36:52], 0)}
    else:
        assert len(traces - {CONTEXT[3:35]}) == 3
        assert [(span.parent_span_id, span.links[0][:2]) for span in spans] == [
            (b"", (bytes.fromhex(CONTEXT[3:35]), bytes.fromhex(CONTEXT[36:52])))
        ] * 3


PROGRAM = "import os\nfrom ray_tracing_hooks._ray.driver import program\nprint('NAMED', program(os.environ))"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["package/part.py"], "part.py"),
        (["-m", "package"], "package"),
        (["-m", "package.part"], "package.part"),
        (["package"], "package"),
        (["-m", "cProfile", "package/part.py"], "part.py"),
    ],
)
def test_a_program_has_a_name(command: list[str], name: str, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    for file in ("__main__.py", "part.py"):
        (tmp_path / "package" / file).write_text(PROGRAM)
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"NAMED {name}\n" in done.stdout


@pytest.mark.parametrize(
    ("in_code", "environ", "name"),
    [
        ("/home/me/train.ipynb", {}, "train.ipynb"),
        (None, {"JPY_SESSION_NAME": "/home/me/notes/explore.ipynb"}, "explore.ipynb"),
        (None, {}, "notebook"),
    ],
)
def test_a_notebook_is_called_by_its_name(
    in_code: str | None, environ: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/venv/lib/ipykernel_launcher.py", "-f", "/run/kernel-1.json"])
    if in_code is not None:
        monkeypatch.setattr(sys.modules["__main__"], "__vsc_ipynb_file__", in_code, raising=False)
    assert program(environ) == name
