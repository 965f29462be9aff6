"""What becomes of what a process records: the spool that it is in, and the shipper that takes it from there."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ray_tracing_hooks._connection.folders import FOLDER, folders, make_private_folder
from ray_tracing_hooks._guard import guarded, logger, report

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.process import RayProcess
    from ray_tracing_hooks._settings import Settings
    from ray_tracing_hooks._ship.plan import ShipPlan


class Delivery:
    """The delivery of what this process records.

    Args:
        process: This process.
        settings: Its settings.
        environ: Its environment variables.
        exporters: Those of the hook, or None for those that the settings name.

    Attributes:
        plan: How spans are delivered.
        spool: The folder of the spool, None where nothing is recorded.
        says_next: Whether :meth:`say_next` says something.
    """

    def __init__(
        self,
        process: RayProcess,
        settings: Settings,
        environ: Mapping[str, str],
        exporters: tuple[str, ...] | None,
    ) -> None:
        from ray_tracing_hooks._ship.environment import of_delivery  # noqa: PLC0415

        self._process = process
        self._settings = settings
        self._is_disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        if exporters is None:
            exporters = settings.exporters
        if self._is_disabled:
            exporters = ()
        self._environ = of_delivery(environ)
        if settings.jaeger_endpoint is not None:
            self._environ["RAY_TRACING_JAEGER_ENDPOINT"] = settings.jaeger_endpoint
        self._flush_left = settings.flush_timeout
        self._written: int | None = None
        self.says_next = True
        self.plan = _plan(process, settings, self._environ, exporters)
        self.spool = make_spool(process, settings, self.plan) if exporters else None

    def begin(self) -> None:
        """Have a shipper at work."""
        from ray_tracing_hooks._ship.start import ensure_running  # noqa: PLC0415

        if self.spool is not None:
            with guarded("starting delivery"):
                ensure_running(self.spool, self.plan, self._environ)

    def keep_shipped(self) -> None:
        """Replace a shipper that was killed, and tell the user what it has to say."""
        from ray_tracing_hooks._ship.news import news  # noqa: PLC0415
        from ray_tracing_hooks._ship.start import ensure_running  # noqa: PLC0415

        if self.spool is not None:
            with guarded("looking after the shipper"):
                ensure_running(self.spool, self.plan, self._environ, patient=True)
                for text in news(self.spool):
                    report(text)

    def say(self) -> None:
        """Tell the user where spans go, and what is wrong with that."""
        if self._is_disabled:
            logger.info("ray_tracing_hooks: tracing is off (OTEL_SDK_DISABLED)")
        if self.spool is None:
            return
        from ray_tracing_hooks._ship.destinations import destinations  # noqa: PLC0415  workers need not know

        places, problems = destinations(self.plan, self._environ)
        for problem in problems:
            report(problem)
        what = "spans and log records" if self.plan.log_records else "spans"
        if places:
            logger.info("ray_tracing_hooks: tracing is on, %s go to %s", what, ", ".join(places))
        else:
            logger.info("ray_tracing_hooks: tracing is on, spans wait in %s until they can be delivered", self.spool)

    def say_next(self) -> None:
        """Tell the user how many spans :meth:`flush` has seen in local files, and which command shows them.

        Only where this driver has started its cluster: the shipper of another one has written spans of other drivers.
        """
        if not self._written or not self.says_next or not self._process.owns_cluster:
            return
        import shlex  # noqa: PLC0415  for drivers only

        spans, folder = f"{self._written:,} span{'s' * (self._written != 1)}", self.plan.local_dir
        logger.info(
            "ray_tracing_hooks: %s written to %s; next: ray-tracing-hooks summary %s",
            spans,
            folder,
            shlex.quote(folder),
        )

    def check_exporters(self, exporters: tuple[str, ...] | None) -> None:
        """Say that another hook than the one that traces this process changes nothing."""
        wanted = self._settings.exporters if exporters is None else exporters
        if wanted != self.plan.exporters and not self._is_disabled:
            report(
                f"this process is traced already, with the exporters {', '.join(self.plan.exporters) or 'none'}; "
                f"a second hook, with {', '.join(wanted) or 'none'}, changes nothing: name several exporters in "
                "RAY_TRACING_EXPORTERS for ray_tracing_hooks:setup"
            )

    def folders(self) -> tuple[str, str | None] | None:
        """The folder of all spools of this node, and that of the local files if there are any; None without a spool."""
        if self.spool is None:
            return None
        return os.path.dirname(self.spool), self.plan.local_dir if "local" in self.plan.exporters else None

    def targets(self) -> frozenset[str]:
        """Where spans are sent by OTLP."""
        from ray_tracing_hooks._ship.destinations import otlp_targets  # noqa: PLC0415  needed by few programs

        return otlp_targets(self.plan, self._environ)

    def flush(self, folders: Sequence[str], *, until_writers_end: bool) -> None:
        """Wait for the delivery of what is in ``folders``.

        All flushes of a connection together take no longer than the setting allows.
        """
        from ray_tracing_hooks._ship.flush import flush  # noqa: PLC0415
        from ray_tracing_hooks._ship.start import ensure_running  # noqa: PLC0415
        from ray_tracing_hooks._spool.reader import segments  # noqa: PLC0415

        assert self.spool is not None

        def is_empty() -> bool:
            return not any(map(segments, folders))

        deadline = time.monotonic() + self._flush_left
        if self._flush_left <= 0 or is_empty():
            return
        ensure_running(self.spool, self.plan, self._environ)
        result = flush(self.spool, self._flush_left, until_writers_end=until_writers_end)
        if not result.running and not is_empty():
            # The one that ran was about to end; another takes its place.
            ensure_running(self.spool, self.plan, self._environ)
            result = flush(self.spool, max(0.0, deadline - time.monotonic()), until_writers_end=until_writers_end)
        self._written = result.written
        self._flush_left = deadline - time.monotonic()
        if not result.running and is_empty():
            return
        for text in (*result.problems, *result.waiting):
            report(text)
        if not result.done and not result.problems and not result.waiting:
            timeout = self._settings.flush_timeout
            report(f"not all spans were delivered within {timeout:g} s (RAY_TRACING_FLUSH_TIMEOUT); delivery goes on")


def _plan(process: RayProcess, settings: Settings, environ: Mapping[str, str], exporters: tuple[str, ...]) -> ShipPlan:
    from ray_tracing_hooks._ship.environment import digest  # noqa: PLC0415
    from ray_tracing_hooks._ship.plan import ShipPlan  # noqa: PLC0415

    if process.is_client:
        log, label = os.path.join(process.session_dir, "client"), f"client-{socket.gethostname()}"
    else:
        log = os.path.join(process.session_dir, "logs", f"{FOLDER}-{process.node_id[:8]}")
        label = f"{process.session_name.removeprefix('session_')}-{process.node_id[:8]}"
    return ShipPlan(
        exporters=exporters,
        local_dir=settings.local_dir,
        local_file_max_bytes=settings.local_file_max_bytes,
        local_max_bytes=settings.local_max_bytes,
        spool_max_bytes=settings.spool_max_bytes,
        raylet_socket=process.raylet_socket.removeprefix("unix://") or None,
        log_file=f"{log}.log",
        label=label,
        jaeger_protocol=settings.jaeger_protocol,
        console_file=f"{log}-console.out",
        metrics=settings.metrics and bool(exporters),
        environment=digest(environ, exporters),
        log_records="otlp" in settings.logs and not {"local", "otlp"}.isdisjoint(exporters),
        keep_errors=settings.keep_errors,
        keep_slower=settings.keep_slower,
        keep_wait=settings.keep_wait,
    )


def make_spool(process: RayProcess, settings: Settings, plan: ShipPlan) -> str | None:
    """The spool folder of this node and plan: processes with other settings have another, and another shipper."""
    described = json.dumps(plan._asdict(), sort_keys=True, default=list)
    name = f"{process.node_id[:12] or 'client'}-{hashlib.sha256(described.encode()).hexdigest()[:8]}"
    ours = folders(process)
    places = [settings.spool_dir, *ours] if settings.spool_dir else [*ours]
    for folder, following in zip(places, [*places[1:], None], strict=True):
        spool = os.path.join(folder, name)
        # What is ours alone is so from our own folder on. The one that a user names may be shared.
        problem = (make_private_folder(folder) if folder in ours else None) or make_private_folder(spool)
        if problem is None:
            return spool
        report(
            f"the spool folder cannot be used: {problem}; "
            + (f"using {following!r}" if following else "nothing is recorded")
        )
    return None
