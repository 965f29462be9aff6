"""The contenders, and how each is started, held still, and told what to do."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

from family import Family

from ray_tracing_hooks._ship.flush import flush

HERE = Path(__file__).parent
T = TypeVar("T")

PATIENCE = 90.0
"""Seconds after which a loop that is not over counts as hung."""

SETTLING = 1.0
"""Seconds that a lane is given at most to finish what its calls have left."""


class Lane(NamedTuple):
    hook: str
    variables: dict[str, str] = {}  # noqa: RUF012  a NamedTuple's default is not changed
    needs: str = ""
    """A module, without which the lane is left out."""


UNTRACED = "untraced"
OURS = "ray_tracing_hooks."
LANES = {
    UNTRACED: Lane(""),
    "again": Lane(""),
    "ray": Lane("ray.util.tracing.setup_local_tmp_tracing:setup_tracing"),
    "batch": Lane("usual_hook:setup"),
    "ddtrace": Lane(
        "ddtrace.contrib.ray:setup_tracing",
        {
            # As its documentation recommends, and with the spans of submissions, which all others make.
            "DD_PATCH_MODULES": "ray:true,aiohttp:false,grpc:false,requests:false",
            "DD_TRACE_RAY_SUBMISSION_SPANS_ENABLED": "true",
            # What it does besides tracing.
            "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
            "DD_REMOTE_CONFIGURATION_ENABLED": "false",
            "DD_CRASHTRACKING_ENABLED": "false",
        },
        needs="ddtrace",
    ),
    "local": Lane(f"{OURS}local:setup"),
    "otlp": Lane(f"{OURS}otlp:setup"),
    "python": Lane(f"{OURS}local:setup", {"RAY_TRACING_COMPILED": "0"}),
    "unsampled": Lane(f"{OURS}local:setup", {"OTEL_TRACES_SAMPLER": "always_off"}),
}
"""``again`` is a second one like the first: how far it is from 1 is how far the others may be off."""

OPTIONS = {
    "waiting": Lane(f"{OURS}local:setup", {"RAY_TRACING_RAY": "+get,wait,put"}),
    "arguments": Lane(f"{OURS}local:setup", {"RAY_TRACING_ARGUMENTS": "1"}),
    "limited": Lane(f"{OURS}local:setup", {"RAY_TRACING_RATE_LIMIT": "10"}),
    "metrics": Lane(f"{OURS}local:setup", {"RAY_TRACING_METRICS": "1"}),
    "sw8": Lane(f"{OURS}local:setup", {"OTEL_PROPAGATORS": "tracecontext,baggage,sw8"}),
    "failed only": Lane(f"{OURS}local:setup", {"OTEL_TRACES_SAMPLER": "always_off", "RAY_TRACING_KEEP_ERRORS": "1"}),
}
"""Ours with what is off by default, to be compared with ``local``, and the last one with ``unsampled``."""


def missing(lane: str) -> str:
    """What has to be installed for this lane, if anything."""
    needed = (LANES | OPTIONS)[lane].needs
    return needed if needed and importlib.util.find_spec(needed) is None else ""


class Turn(NamedTuple):
    """What one turn of a lane has come to."""

    rate: float
    """Calls a second."""
    processor_time: float
    """Seconds a call, of the driver, its cluster and what delivers its spans, until all is delivered."""
    by_role: dict[str, float]
    """The processor time by the processes that spent it."""


class FailedError(Exception):
    """A lane cannot run a loop."""


class DeadError(FailedError):
    """A lane's process has ended or hangs."""


class Driver:
    """A lane's process with its cluster, which stand still but in their turn."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._folder = process, folder
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout
        self._family = Family(process.pid)

    def wait_until_ready(self) -> None:
        """Wait until the cluster is up, which then stands still."""
        self._hear()
        self._family.pause()

    def tell(self, what: str) -> str:
        """Go on, do this and what follows from it, and stand still again."""
        self._family.go_on()
        try:
            answer = self._ask(what)
            self._settle()
        finally:
            self._family.pause()
        return answer

    def turn(self, warm: float, seconds: float) -> Turn:
        before = self._family.processor_times()
        calls, rate = self.tell(f"run {warm} {seconds}").split()
        after = self._family.processor_times()
        by_role = {role: (after[role] - before[role]) / int(calls) for role in after}
        return Turn(float(rate), sum(by_role.values()), by_role)

    def ask_to_end(self) -> None:
        self._family.go_on()
        with contextlib.suppress(OSError):
            self._in.close()

    def wait_until_ended(self) -> None:
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._family.end()
            self._process.wait(PATIENCE)

    def _settle(self) -> None:
        """Have everything delivered: neither the next lane pays for it, nor nobody."""
        for spool in self._folder.glob("spool/*"):
            flush(str(spool), SETTLING)
        self._family.wait_until_quiet(SETTLING)

    def _ask(self, what: str) -> str:
        with contextlib.suppress(OSError):  # it has ended, as is found out next
            self._in.write(what + "\n")
            self._in.flush()
        return self._hear()

    def _hear(self) -> str:
        if not select.select([self._out], [], [], PATIENCE)[0]:
            raise DeadError(f"hung for {PATIENCE:g} s")
        while line := self._out.readline():
            kind, _, rest = line.strip().partition(" ")
            if kind == "FAILED":
                raise FailedError(rest)
            if kind in {"READY", "DONE", "RAN"}:
                return rest
        raise DeadError(f"the driver has ended: {(self._folder / 'log').read_text()[-1000:]}")


class Contenders:
    """All lanes of a session, with what they send to.

    Args:
        stack: Ends them.
        folder: Where each has a folder of its own.
        lanes: Which there are.
    """

    def __init__(self, stack: ExitStack, folder: str, lanes: list[str]) -> None:
        self._folder = folder
        self._addresses = {"OTEL_EXPORTER_OTLP_ENDPOINT": stack.enter_context(_receiver(COLLECTOR))}
        if "ddtrace" in lanes:
            self._addresses["DD_TRACE_AGENT_URL"] = stack.enter_context(_receiver(AGENT))
        self._started = 0
        self._drivers: dict[str, Driver] = {}
        # What is told to end ends its clusters too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        stack.callback(self._end)
        # One by one: two clusters that start at once may take the same port.
        for name in lanes:
            self._start(name)

    def _start(self, name: str) -> None:
        lane = (LANES | OPTIONS)[name]
        self._started += 1
        path = Path(self._folder, f"{name}-{self._started}")
        path.mkdir()
        environment = {
            **os.environ,
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": str(path),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
            "RAY_TRACING_LOCAL_DIR": str(path / "spans"),
            "RAY_TRACING_SPOOL_DIR": str(path / "spool"),
            **self._addresses,
            **lane.variables,
        }
        with open(path / "log", "w") as log:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "lane.py"), lane.hook],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._drivers[name] = Driver(process, path)
        self._drivers[name].wait_until_ready()

    def prepare(self, name: str, loop: str) -> bool:
        """Have a lane make a loop. False if it cannot run that."""
        return self._try(name, lambda driver: driver.tell(f"prepare {loop}")) is not None

    def turn(self, name: str, warm: float, seconds: float) -> Turn | None:
        """Have a lane run its loop. None if it cannot any more."""
        return self._try(name, lambda driver: driver.turn(warm, seconds))

    def drop(self, name: str) -> None:
        """Have a lane let go of its loop."""
        self._try(name, lambda driver: driver.tell("drop"))

    def _try(self, name: str, do: Callable[[Driver], T]) -> T | None:
        try:
            return do(self._drivers[name])
        except FailedError as error:
            print(f"{name} fails: {error}", file=sys.stderr, flush=True)
            if isinstance(error, DeadError):
                self._drivers[name].ask_to_end()
                self._drivers[name].wait_until_ended()
                self._start(name)
            else:
                self._drivers[name].tell("drop")
        return None

    def _end(self) -> None:
        for driver in self._drivers.values():
            driver.ask_to_end()
        for driver in self._drivers.values():
            driver.wait_until_ended()


COLLECTOR = [str(HERE.parent / "shipper_throughput.py"), "--collect", "grpc"]
AGENT = [str(HERE / "agent.py")]


@contextmanager
def _receiver(command: list[str]) -> Iterator[str]:
    """The address of a process that answers at once whatever is sent to it."""
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
            if command is AGENT:
                process.stdin.close()
                print(f"ddtrace's agent: {process.stdout.read().strip()}", file=sys.stderr, flush=True)
        finally:
            process.terminate()
