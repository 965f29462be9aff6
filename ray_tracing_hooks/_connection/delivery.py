"""The delivery of what a process records: its spool, and the shipper that reads it.

It also collects the spans of all nodes when a driver ends, if ``RAY_TRACING_COLLECT_TO`` asks for it.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._connection.folders import FOLDER, folders, make_private_folder
from ray_tracing_hooks._safety.guard import guarded, logger, report
from ray_tracing_hooks._settings.values import Hint
from ray_tracing_hooks._ship import start
from ray_tracing_hooks._ship.plan import ShipPlan, take_log_records, with_settings
from ray_tracing_hooks._spool.layout import spool_name

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.process import RayProcess
    from ray_tracing_hooks._record.sampling import Sampler
    from ray_tracing_hooks._settings.table import Settings


SKYWALKING = "skywalking"
_DISABLED = "OTEL_SDK_DISABLED"


class Delivery:
    """The delivery of what this process records.

    Args:
        exporters: The exporters of the hook, or None for those of the settings.

    Attributes:
        spool: The spool folder, None where nothing is recorded.
        joins_skywalking: Whether this process continues the traces of SkyWalking's agents.
        says_next: Whether :meth:`say_next` logs anything.
    """

    def __init__(
        self,
        process: RayProcess,
        settings: Settings,
        environ: Mapping[str, str],
        exporters: tuple[str, ...] | None,
    ) -> None:
        self._process = process
        self._settings = settings
        self._is_disabled = is_disabled(environ)
        self.joins_skywalking = SKYWALKING in (settings.exporters if exporters is None else exporters)
        exporters = () if self._is_disabled else sending(settings, exporters)
        self._environ = with_settings(environ, settings, process.start_directory)
        self._flush_left = settings.flush_timeout
        self._written: int | None = None
        self.says_next = True
        self.plan = _plan(process, settings, self._environ, exporters)
        self.spool = make_spool(process, settings, self.plan) if exporters else None

    def begin(self) -> None:
        """Start the shipper unless it is running."""
        if self.spool is not None:
            with guarded("starting delivery"):
                start.ensure_running(self.spool, self.plan, self._environ)

    def retire(self, following: Delivery) -> None:
        """Let the shipper end once it has delivered everything, since this node delivers otherwise from now on."""
        if self.spool is not None:
            start.retire(self.spool, following.spool)

    def reinstate(self) -> None:
        if self.spool is not None:
            start.reinstate(self.spool, self.plan)

    def keep_shipped(self) -> None:
        """Replace a shipper that was killed, and report the shipper's messages to the user."""
        from ray_tracing_hooks._ship.figures import read  # noqa: PLC0415

        if self.spool is not None:
            with guarded("watching the shipper"):
                start.ensure_running(self.spool, self.plan, self._environ, patient=True)
                figures = read(self.spool)
                for text in figures.messages if figures is not None else ():
                    report(text)

    def say(self, sampler: Sampler) -> None:
        """Log where the spans that ``sampler`` takes go, and report problems with these destinations."""
        if self._is_disabled:
            logger.info("ray_tracing_hooks: tracing is off (OTEL_SDK_DISABLED)")
        if self.spool is None:
            return
        from ray_tracing_hooks._ship.registry import destinations  # noqa: PLC0415  not needed in workers

        places, problems = destinations(self.plan, self._environ)
        for problem in problems:
            report(problem)
        state, what = "tracing is on", "spans and log records" if self.plan.log_records else "spans"
        if sampler.samples_no_root:
            state, what = "OTEL_TRACES_SAMPLER samples no new trace", f"{what} that are recorded all the same"
            keeps = self._settings.keep_errors or self._settings.keep_slower is not None
            if not keeps and not sampler.child(True, bytes(16)):
                state = "this driver records no spans, since OTEL_TRACES_SAMPLER samples none"
                what = "log records" if self.plan.log_records else ""
        if not what:
            logger.info("ray_tracing_hooks: %s", state)
        elif places:
            logger.info("ray_tracing_hooks: %s, %s go to %s", state, what, ", ".join(places))
        else:
            logger.info("ray_tracing_hooks: %s, %s wait in %s until they can be delivered", state, what, self.spool)

    def say_next(self) -> None:
        """Log how many spans :meth:`flush` has seen in local files, and which command shows them.

        Only if this driver has started its cluster: elsewhere the count would include spans of other drivers.
        """
        if not self._written or not self.says_next or not self._process.owns_cluster:
            return
        import shlex  # noqa: PLC0415  for drivers only

        spans, folder = f"{self._written:,} span{'s' * (self._written != 1)}", self.plan.settings.local_dir
        logger.info(
            "ray_tracing_hooks: %s written to %s; next: ray-tracing-hooks summary %s",
            spans,
            folder,
            shlex.quote(folder),
        )

    def check_exporters(self, exporters: tuple[str, ...] | None) -> None:
        """Report a hook with other exporters than the one that traces this process: it has no effect."""
        wanted = sending(self._settings, exporters)
        if wanted != self.plan.exporters and not self._is_disabled:
            report(
                f"this process is already traced, with the exporters {', '.join(self.plan.exporters) or 'none'}; "
                f"a second hook, with {', '.join(wanted) or 'none'}, has no effect: list several exporters in "
                "RAY_TRACING_EXPORTERS for ray_tracing_hooks:setup"
            )

    def folders(self) -> tuple[str, str | None] | None:
        """The folder of all spools of this node, and that of the local files if any; None without a spool."""
        if self.spool is None:
            return None
        return os.path.dirname(self.spool), self.plan.settings.local_dir if "local" in self.plan.exporters else None

    def targets(self) -> frozenset[str]:
        """The OTLP endpoints that spans are sent to."""
        from ray_tracing_hooks._ship.registry import otlp_targets  # noqa: PLC0415  few programs need it

        return otlp_targets(self.plan, self._environ)

    def flush(self, *, until_writers_end: bool) -> None:
        """Wait for the delivery of the spool.

        All flushes of a connection together wait no longer than the flush timeout.
        """
        from ray_tracing_hooks._ship.flush import flush  # noqa: PLC0415  for drivers only
        from ray_tracing_hooks._spool.reader import segments  # noqa: PLC0415  as above

        spool = self.spool
        assert spool is not None

        def is_empty() -> bool:
            return not segments(spool)

        deadline = monotonic() + self._flush_left
        if self._flush_left <= 0 or is_empty():
            return
        start.ensure_running(spool, self.plan, self._environ)
        result = flush(spool, self._flush_left, until_writers_end=until_writers_end)
        if not result.running and not is_empty():
            # The shipper was about to end; start another one.
            start.ensure_running(spool, self.plan, self._environ)
            result = flush(spool, max(0.0, deadline - monotonic()), until_writers_end=until_writers_end)
        self._written = result.written
        self._flush_left = deadline - monotonic()
        if not result.running and is_empty():
            return
        for text in (*result.problems, *result.waiting):
            report(text)
        if not result.done and not result.problems and not result.waiting:
            timeout = self._settings.flush_timeout
            report(f"not all spans were delivered within {timeout:g} s (RAY_TRACING_FLUSH_TIMEOUT); delivery continues")


def is_disabled(environ: Mapping[str, str]) -> bool:
    """Whether ``OTEL_SDK_DISABLED`` says that nothing is recorded. An invalid value is reported elsewhere."""
    if not environ.get(_DISABLED):
        return False
    from ray_tracing_hooks._settings import otel  # noqa: PLC0415  most processes have no such variable

    return bool(otel.read(_DISABLED, environ, lambda _problem: None))


def sending(settings: Settings, exporters: tuple[str, ...] | None) -> tuple[str, ...]:
    """The exporters that spans are sent with. SkyWalking's is left out where traces are only joined by headers."""
    wanted = settings.exporters if exporters is None else exporters
    if SKYWALKING not in wanted:
        return wanted
    from ray_tracing_hooks._ship.sinks import skywalking_settings  # noqa: PLC0415  few programs need them

    if settings.of(skywalking_settings.Settings).transport != "none":
        return wanted
    others = wanted if len(wanted) > 1 else settings.exporters
    return tuple(name for name in others if name != SKYWALKING)


def unmet(settings: Settings, exporters: Sequence[str]) -> dict[str, str]:
    """Problems of settings that are valid, and that none of these exporters can follow, by the name of the setting.

    Those of metrics are found with their destinations.
    """
    problems: dict[str, str] = {}
    if "otlp" in settings.logs and exporters and not take_log_records(exporters):
        problems["logs"] = (
            "log records are not delivered, although RAY_TRACING_LOGS contains otlp: only the exporters local and otlp "
            f"take them, and the exporters are {', '.join(exporters)}"
        )
    if settings.collect_to is not None and "local" not in exporters:
        problems["collect_to"] = Hint(
            "RAY_TRACING_COLLECT_TO collects the files of the exporter local, which is not in use "
            f"({', '.join(exporters) or 'none'} is): only spans that wait are collected"
        )
    return problems


def _plan(process: RayProcess, settings: Settings, environ: Mapping[str, str], exporters: tuple[str, ...]) -> ShipPlan:
    if process.is_client:
        log, label = os.path.join(process.session_dir, "client"), f"client-{socket.gethostname()}"
    else:
        log = os.path.join(process.session_dir, "logs", f"{FOLDER}-{process.node_id[:8]}")
        label = f"{process.session_name.removeprefix('session_')}-{process.node_id[:8]}"
    return ShipPlan.of(
        settings.in_session(process.session_dir),
        exporters,
        environ,
        raylet_socket=process.raylet_socket.removeprefix("unix://") or None,
        log_file=f"{log}.log",
        label=label,
        console_file=f"{log}-console.out",
    )


def make_spool(process: RayProcess, settings: Settings, plan: ShipPlan) -> str | None:
    """The spool folder for this node and plan: processes with other settings have their own, with their own shipper."""
    name = spool_name(process.node_id, hashlib.sha256(plan.as_json().encode()).hexdigest())
    ours = folders(process)
    places = [settings.spool_dir, *ours] if settings.spool_dir else [*ours]
    for folder, following in zip(places, [*places[1:], None], strict=True):
        spool = os.path.join(folder, name)
        # Our own folder must be private too. A folder that the user names may be shared.
        problem = (make_private_folder(folder) if folder in ours else None) or make_private_folder(spool)
        if problem is None:
            return spool
        report(
            f"the spool folder cannot be used: {problem}; "
            + (f"using {following!r}" if following else "nothing is recorded")
        )
    return None


_OF_JOB = frozenset({"RAY_JOB_CONFIG_JSON_ENV_VAR"})
"""What Ray tells the driver of a submitted job (Ray 2.60 ``_private/runtime_env/constants.py``)."""

_LONGEST = 2e6
"""Seconds, 23 days: the system cannot wait much longer at once."""

_LAST_OUTPUT = 2000
"""Characters of the output of a command that fails."""


def collect(process: RayProcess, settings: Settings, delivery: Delivery) -> None:
    """Run ``ray-tracing-hooks collect`` for the cluster that this driver is about to leave, within the time-out.

    In a process of its own: the driver's own connection ends, and what fails or hangs there ends nothing here. Its
    result is logged.
    """
    import subprocess  # noqa: PLC0415  few programs do so

    if problem := unmet(settings, delivery.plan.exporters).get("collect_to"):
        report(problem)
    seconds = settings.collect_timeout
    try:
        done = subprocess.run(  # noqa: S603  the arguments are ours
            [sys.executable, "-m", "ray_tracing_hooks", "collect", "--address", process.gcs_address],
            env=_collect_environment(settings),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=min(seconds, _LONGEST),
            check=False,
        )
    except subprocess.TimeoutExpired:
        report(
            f"not all spans were collected within {seconds:g} s (RAY_TRACING_COLLECT_TIMEOUT): run `ray-tracing-hooks "
            "collect` while the cluster runs"
        )
        return
    for line in done.stdout.splitlines():
        logger.info("ray_tracing_hooks: %s", line)
    if done.returncode:
        report(f"not all spans were collected: {' '.join(done.stderr[-_LAST_OUTPUT:].split())}")


def _collect_environment(settings: Settings) -> dict[str, str]:
    """The variables of the command, which finds the same packages as this process."""
    # The place is no argument, since it may contain a password, which the list of processes must not show.
    found = {**start.environment(os.environ), "RAY_TRACING_COLLECT_TO": str(settings.collect_to)}
    # Otherwise the command would be a driver of the same submitted job, with its runtime environment.
    return {name: value for name, value in found.items() if name not in _OF_JOB}
