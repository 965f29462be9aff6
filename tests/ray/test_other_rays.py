"""A Ray version in which a patched attribute has moved works, and the user is informed once."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray
from support import INSIDE, await_spans, path_with, run_program

from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._ray.arguments import signature_module

pytestmark = pytest.mark.slow  # a cluster for each part of Ray that is missing

RESULT = [*range(20), "ValueError: as expected", 0, 1, 2, 1]
KNOWN = f"Ray {ray.__version__} has changed the code that this package wraps"
UNKNOWN_ARGUMENTS = (
    "this version of Ray passes arguments in an unknown way: "
    "tasks and actors are traced where they are called, but not where they run"
)
SIGNATURE = signature_module().__name__


@pytest.mark.parametrize(
    ("missing", "told", "kinds"),
    [
        (f"{SIGNATURE}.flatten_args", UNKNOWN_ARGUMENTS, {"submitted"}),
        (f"{SIGNATURE}.recover_args", UNKNOWN_ARGUMENTS, {"submitted"}),
        (
            "ray.util.tracing.tracing_helper._enable_tracing",
            "this version of Ray connects in an unknown way: a second ray.init() is not traced",
            {"submitted", "executed"},
        ),
        ("RemoteFunction._remote", f"calls of tasks are not traced: {KNOWN}", {"submitted", "executed"}),
        ("ActorClass._remote", f"calls of actors are not traced: {KNOWN}", {"submitted", "executed"}),
        ("ActorMethod._remote", f"calls of actors are not traced: {KNOWN}", {"submitted", "executed"}),
        (
            "FunctionActorManager.get_execution_info",
            f"tasks and actors are not traced where they run: {KNOWN}",
            {"submitted"},
        ),
        (
            "ray._private.utils.format_error_message",
            f"tracebacks from tasks contain lines of this package: {KNOWN}",
            {"submitted", "executed"},
        ),
        ("Worker.set_mode", f"the end of a driver is not detected: {KNOWN}", {"submitted", "executed"}),
    ],
)
def test_what_is_missing_is_told_once_and_the_program_runs(
    missing: str, told: str, kinds: set[str], tmp_path: Path
) -> None:
    run = run_program(
        "everything",
        RTH_HOOK="ray_tracing_hooks.local:setup",
        RTH_MISSING=missing,
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        PYTHONPATH=path_with(INSIDE),
    )
    assert run.result == RESULT
    assert run.stderr.count("WARNING") == 1, run.stderr
    assert run.stderr.count(f"ray_tracing_hooks: {told}\n") == 1, run.stderr
    # A driver whose end is not detected does not wait for delivery.
    assert kinds_of(await_spans(tmp_path / "spans", lambda spans: kinds_of(spans) >= kinds)) == kinds


def kinds_of(spans: list[Span]) -> set[str]:
    kinds = {"ray.remote": "submitted", "ray.remote_worker": "executed"}
    suffixes = (span.name.rpartition(" ")[2] for span in spans)
    return {kinds[suffix] for suffix in suffixes if suffix in kinds}
