"""What the tests with real Ray share: running a program, and looking at the spans that it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import installed
import pytest
from packaging.version import Version

from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import read
from ray_tracing_hooks._insight.model.span import Span

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = Path(__file__).parent / "programs"
INSIDE = PROGRAMS.parent / "inside"
"""Programs that look at how the package works."""

HELPERS = Path(__file__).parents[1] / "helpers"
SERVER, PRODUCER, CONSUMER = 2, 4, 5
CLIENT = "00000000000000ff"
"""The span of the client in the requests of programs with Ray Serve."""
HOOK = "ray_tracing_hooks.local:setup"

RAY = (sys.executable, str(PROGRAMS / "lean.py"))
"""The command ``ray``, that starts nodes with fewer processes."""

ray_folder = "/tmp/ray"
"""Where Ray keeps its session; the tests set a folder of their own, which goes with them."""


@dataclass
class Run:
    """A program that has ended: what it returned and printed."""

    result: Any
    stdout: str
    stderr: str
    returncode: int
    spans: list[Span] = field(default_factory=list)


PATIENCE = 600
"""Seconds after which a program counts as hanging. A busy machine takes minutes for some."""

ANY_PORTS = ("--min-worker-port=0", "--max-worker-port=0")
"""Options of ``ray start``: workers take free ports. Else those of all clusters of a machine begin at the same one."""


def environment(**variables: str) -> dict[str, str]:
    """The environment of a program: this one's, without token authentication, with programs and helpers importable."""
    return {
        **os.environ,
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": ray_folder,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROGRAMS), str(HELPERS), os.environ.get("PYTHONPATH")])),
        "PYTHONWARNINGS": "default",
        # A busy machine may need more than the default of five.
        "RAY_TRACING_FLUSH_TIMEOUT": "30",
        # No workers but those that a call asks for: each takes a second of processor time to start.
        "RAY_prestart_worker_first_driver": "0",
        "RAY_enable_worker_prestart": "0",
        # They stay as long as their job: on a busy machine one is idle for a second before the next task comes.
        "RAY_idle_worker_killing_time_threshold_ms": "60000",
        # As quick as what they answer to. By default workers come last, and on a busy machine time-outs come first.
        "RAY_worker_niceness": "0",
        # Milliseconds after which a call of an actor that does not answer fails as unavailable, not yet known as dead.
        "RAY_timeout_ms_task_wait_for_death_info": "5000",
        **variables,
    }


def path_with(*folders: str | Path) -> str:
    """The ``PYTHONPATH`` of programs, with these folders after the others."""
    return os.pathsep.join([environment()["PYTHONPATH"], *map(str, folders)])


LEAN = INSIDE / "on_path"
"""On the path of programs as users write them: the clusters that they start have few processes too."""


def with_extras() -> dict[str, Any]:
    """The variables of processes that need what the dashboard or Serve does, and of those that call them."""
    return {
        "PYTHONPATH": path_with(installed.folder("extras")),
        # Serve kills a proxy that has not answered for 5 and 10 s, which a busy machine may take to start it.
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
        # How long it takes to see that a proxy has been killed.
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
    }


def with_data() -> dict[str, Any]:
    """The variables of processes that need what Ray Data does."""
    return {"PYTHONPATH": path_with(installed.folder("data"))}


def with_training() -> dict[str, Any]:
    """The variables of processes that use Ray Train, Tune or RLlib."""
    return {
        "PYTHONPATH": path_with(installed.folder("train")),
        # How long a report may wait until the controller asks for it.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
        "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    }


NEEDS_TRAIN_V2 = pytest.mark.skipif(
    Version(version("ray")) < Version("2.52"), reason="this Ray has the first version of Ray Train, and its API"
)

CLIENT_SERVER = {
    # How long Ray waits for the server that it starts for a client. Half a minute is short on a busy machine.
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "90",
    # Ray starts it by a fork beside the threads of gRPC, and from grpcio 1.80 on what is forked crashes now and then:
    # https://github.com/grpc/grpc/issues/43055
    "GRPC_ENABLE_FORK_SUPPORT": "false",
}
"""Variables of heads that have clients."""


def text_of_serve(module: str) -> str:
    """The source of a module of Serve's, empty if this Ray has none. It cannot be imported but in the programs."""
    import ray

    path = Path(ray.__file__).parent / "serve" / f"{module}.py"
    return path.read_text() if path.exists() else ""


def serve_route(prefix: str, pattern: str) -> str:
    """A route as Serve's proxy knows it: old versions of Ray only know how it begins."""
    return prefix + pattern if "def match_route_pattern" in text_of_serve("_private/proxy_router") else prefix


def run_program(name: str, *arguments: str, check: bool = True, command: Sequence[str] = (), **variables: str) -> Run:
    """Run a program of the ``programs`` folder to its end; ``command`` is what runs it, if not Python alone.

    Of the ``variables``, ``RTH_FOLDER`` is the folder that it runs in.
    """
    words = [*command, sys.executable, str(PROGRAMS / f"{name}.py"), *arguments]
    done = ended(words, variables.get("RTH_FOLDER"), **variables)
    if check and not _ended_well(done):
        raise AssertionError(f"{name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    # Ray's own threads print too, and what they print may follow on the same line.
    _, found, printed = done.stdout.rpartition("RESULT ")
    result = json.JSONDecoder().raw_decode(printed)[0] if found else None
    return Run(result, done.stdout, done.stderr, done.returncode)


def python(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments, and variables of its environment, to its end, which has to be a good one."""
    done = ended([sys.executable, *map(str, arguments)], **variables)
    assert done.returncode == 0, done.stderr
    return done


def command(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``ray-tracing-hooks`` to its end, whatever that is."""
    words = [sys.executable, "-m", "ray_tracing_hooks", *map(str, arguments)]
    return ended(words, **{"PYTHONWARNINGS": "ignore", **variables})


def ended(words: Sequence[str], folder: str | Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in this folder, and in a process group of its own."""
    return subprocess.run(
        words,
        env=environment(**variables),
        cwd=folder,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def without_placement(spans: Sequence[Span]) -> list[Span]:
    """The spans but those of the task by which older Rays await a placement group."""
    return [span for span in spans if not span.name.startswith("ray.util.placement_group.")]


def _ended_well(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a program ended as it should, but for a fault of older Rays: on a busy machine, a thread of theirs may
    outlive what it uses while the process exits.
    """
    is_fault_of_ray = done.returncode == -signal.SIGSEGV and "DeltaProducer::RunHarvesterLoop()" in done.stderr
    return done.returncode == 0 or (is_fault_of_ray and Version(version("ray")) < Version("2.52"))


def run_client(name: str, *arguments: str, check: bool = True, **variables: str) -> Run:
    """As ``run_program``, of a program that is a client of a cluster: ``RTH_ADDRESS`` begins with ``ray://``."""
    run = run_program(name, *arguments, check=False, **variables)
    if "Initialization failure from server" in run.stderr:
        # The server of a client takes the first free port from 23000 on, and ends if another cluster was faster.
        run = run_program(name, *arguments, check=False, **variables)
    assert not check or run.returncode == 0, run.stderr
    return run


def logs_in_json() -> bool:
    """Whether this Ray writes its logs as JSON, where a program asks for that. Old ones do not."""
    import ray

    try:
        ray.LoggingConfig(encoding="JSON")
    except ValueError:
        return False
    return True


def spans_in(folder: Path) -> list[Span]:
    """Every span in the files of a folder."""
    return read(span_files([str(folder)]))[0] if folder.exists() else []


def await_spans(folder: Path, enough: Callable[[list[Span]], bool], timeout: float = 60) -> list[Span]:
    """The spans of a folder as soon as they are ``enough``, or as they are at the deadline."""
    deadline = time.monotonic() + timeout
    while True:
        spans = spans_in(folder)
        if enough(spans) or time.monotonic() > deadline:
            return spans
        time.sleep(0.1)


def of_driver(spans: Sequence[Span], script: str) -> list[Span]:
    """The spans of the newest trace whose root is the driver that ran ``script``."""
    roots = [span for span in spans if span.name == f"{script}.py ray.driver"]
    assert roots, f"no root span of {script}.py among {Counter(span.name for span in spans)}"
    trace_id = max(roots, key=lambda span: span.start_ns).trace_id
    return [span for span in spans if span.trace_id == trace_id]


def tree(spans: Sequence[Span]) -> str:
    """The trace as indented names, without the driver's own line: failures with their type, equal siblings counted.

    ``NAME call`` is a submission that has not failed, with nothing but its one execution below it, which that line is
    of. Siblings are sorted by their text, so that concurrency does not show.
    """
    known = {span.span_id for span in spans}
    children: dict[str, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)

    def text(span: Span) -> str:
        line, below = span.name, children.get(span.span_id, [])
        if (
            span.status_code != 2
            and line.endswith(" ray.remote")
            and [each.name for each in below] == [line + "_worker"]
        ):
            line, (span,) = f"{line.removesuffix('ray.remote')}call", below
        if span.status_code == 2:
            line += f" !{span.attributes.get('error.type', 'error')}"
        if span.attributes.get("ray.attempt"):
            line += f" #{span.attributes['ray.attempt']}"
        return "\n".join([line, *(f"  {each}" for child in below_of(span.span_id) for each in child.splitlines())])

    def below_of(span_id: str) -> list[str]:
        counted = Counter(text(child) for child in children.get(span_id, []))
        out = []
        for child, count in sorted(counted.items()):
            first, *rest = child.splitlines()
            out.append("\n".join([first + (f" x{count}" if count > 1 else ""), *rest]))
        return out

    roots = [span for span in children.get("", []) if span.name.endswith(" ray.driver")]
    others = [text(span) for span in children.get("", []) if span not in roots]
    return "\n".join([*(line for root in roots for line in below_of(root.span_id)), *sorted(others)])


def by_name(spans: Sequence[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def below(spans: Sequence[Span], name: str) -> list[Span]:
    """The span with this name, which there is once, and all below it."""
    (top,) = by_name(spans, name)
    found, children = [top], [top]
    while children:
        ids = {span.span_id for span in children}
        children = [span for span in spans if span.parent_id in ids]
        found += children
    return found


class Served:
    """What a program of Ray Serve got, and the spans of everything since it began.

    Newer versions of FastAPI make spans, which are left out.
    """

    def __init__(self, result: Any, spans: Sequence[Span]) -> None:
        self.result = result
        left_out = {span.span_id: span.parent_id for span in spans if "fastapi" in span.scope}
        self.spans = [span for span in spans if span.span_id not in left_out]
        for span in self.spans:
            while span.parent_id in left_out:
                span.parent_id = left_out[span.parent_id]

    def trace(self, name: str) -> list[Span]:
        """The spans of one request, whose trace id is made of its name."""
        return [span for span in self.spans if span.trace_id == name.encode().hex().zfill(32)]

    def trace_of(self, name: str) -> list[Span]:
        """The trace of a span that the program has begun without a parent."""
        (root,) = by_name(self.spans, name)
        assert not root.parent_id
        return [span for span in self.spans if span.trace_id == root.trace_id]

    def tree(self, name: str) -> str:
        return tree(self.trace(name))

    def proxy(self, name: str) -> Span:
        """The span of the request at the proxy."""
        (span,) = (span for span in self.trace(name) if span.kind == SERVER)
        return span


def check_links(spans: Sequence[Span], outside: str = "") -> None:
    """What holds for every trace: parents are there but for ``outside``, and an execution is below its submission."""
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans), "span ids are unique"
    for span in spans:
        if span.parent_id and span.parent_id != outside:
            assert span.parent_id in by_id, f"the parent of {span.name} is missing"
            assert by_id[span.parent_id].trace_id == span.trace_id
        if span.name.endswith(" ray.remote_worker"):
            parent = by_id[span.parent_id]
            assert span.kind == CONSUMER
            assert parent.kind == PRODUCER
            assert parent.name.endswith(" ray.remote")
            assert parent.name.split(" ")[0].rpartition(".")[2] == span.name.split(" ")[0].rpartition(".")[2]
            task_id = span.attributes["ray.task_id"]
            assert parent.attributes.get("ray.task_id", task_id) == task_id
