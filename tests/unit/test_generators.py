"""Generators of tasks, with whatever keeps the current context."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUNTIME = """
import threading
from opentelemetry.context.context import Context, _RuntimeContext

class ThreadLocal(_RuntimeContext):
    def __init__(self):
        self.local = threading.local()

    def get_current(self):
        return getattr(self.local, "context", None) or Context()

    def attach(self, context):
        before, self.local.context = self.get_current(), context
        return before

    def detach(self, token):
        self.local.context = token
"""
PROGRAM = """
import json
from opentelemetry import context
from ray_tracing_hooks._ray import generators

def now():
    return dict(context.get_current())

def body():
    seen.append(now())
    yield 1
    token = context.attach(context.set_value("inner", 1))
    yield 2
    seen.append(now())
    context.detach(token)
    yield 3
    seen.append(now())

seen, outside = [], []
for _ in generators.traced(body(), context.set_value("task", 1), None):
    outside.append(now())
outside.append(now())
print(json.dumps([seen, outside, type(context._RUNTIME_CONTEXT).__name__]))
"""


@pytest.mark.parametrize("runtime", ["ContextVarsRuntimeContext", "ThreadLocal"])
def test_the_context_of_a_generator_holds_inside_of_it_alone(runtime: str, tmp_path: Path) -> None:
    """At each step, with what the body has attached across a yield; nothing of it is left in the worker's thread."""
    info = tmp_path / "local-1.dist-info"
    info.mkdir()
    (tmp_path / "local.py").write_text(RUNTIME)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: local\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[opentelemetry_context]\nThreadLocal = local:ThreadLocal\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])),
            **({"OTEL_PYTHON_CONTEXT": runtime} if runtime == "ThreadLocal" else {}),
        },
    )
    seen, outside, found = json.loads(done.stdout)
    assert found == runtime
    assert seen == [{"task": 1}, {"task": 1, "inner": 1}, {"task": 1}]
    assert outside == [{}] * 4
