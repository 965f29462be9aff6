"""Programs that record spans as a process of Ray's does, each run in a process of its own and strictly.

They use the compiled part of the hot path if the test does. Python's development mode is on and warnings are errors, so
nothing that is left open or misused goes unseen; a program that hangs says where and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import read
from ray_tracing_hooks._insight.model.span import Span

PRELUDE = """
import faulthandler, gc, json, os, random, signal, subprocess, sys, threading, time
faulthandler.dump_traceback_later(90, exit=True)

from opentelemetry import trace
from ray_tracing_hooks import names
from ray_tracing_hooks._safety import guard
from ray_tracing_hooks._safety.patching import Patches
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._record import ids, sampling
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._formats.encoded_span.encode import identity_of
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._sdk import bridge, resource
from ray_tracing_hooks._spool.writer import SpoolWriter

said = []
guard.set_reporter(said.append)
known = resource.attributes({names.RESOURCE_WORKER_ID: "worker"}, {})
writer = SpoolWriter(
    sys.argv[1], segment_bytes=int(sys.argv[2]), on_problem=guard.report, of_child=resource.of_child(known)
)
recorder = Recorder(
    writer, resource=encode.resource(known), scope=encode.scope("recorder"),
    sampler=sampling.from_environment({}), limits=SpanLimits(),
)
bridge.install(recorder, writer, known, Patches())
tracer = trace.get_tracer("program")

def begin(name):
    trace_id, flags = recorder.decide(None)
    return recorder.start(Template(name, 1, {}), trace_id, flags, None)

def tell(result):
    print(json.dumps(result), flush=True)
"""


class Recorded(NamedTuple):
    """What a program told, and the spans that it left."""

    told: Any
    spans: list[Span]

    def count(self, name: str) -> int:
        return sum(span.name == name for span in self.spans)


def run(program: str, folder: Path, segment_bytes: int = 1 << 24) -> Any:
    """Run a program to its end, and give what it told. It must end well and write nothing to stderr."""
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", PRELUDE + program, str(folder), str(segment_bytes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, _compiled.VARIABLE: str(int(_compiled.use.is_on))},
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=100)
        finally:
            # Its children too, if one of them hangs.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, stderr) == (0, ""), stderr
    return json.loads(stdout.splitlines()[-1]) if stdout else None


def record(program: str, folder: Path, segment_bytes: int = 1 << 24) -> Recorded:
    """The same, and the spans that it left. Its spool must be sound, and hold no span twice."""
    told = run(program, folder, segment_bytes)
    spans, quality = read(span_files([str(folder)]))
    assert (quality.bad_lines, quality.duplicates, quality.dropped) == (0, 0, 0), quality
    assert len({span.span_id for span in spans}) == len(spans)
    return Recorded(told, spans)
