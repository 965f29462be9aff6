"""The tracing of a process while it is connected to a traced cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from ray_tracing_hooks import names
from ray_tracing_hooks._connection.delivery import SKYWALKING, Delivery, collect, unmet
from ray_tracing_hooks._connection.recording import Recording, close, deliver_at_exit, exit_in_order
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._safety.guard import guarded, logger, report
from ray_tracing_hooks._safety.patching import Patches
from ray_tracing_hooks._sdk import bridge
from ray_tracing_hooks._settings.values import copied

if TYPE_CHECKING:
    from ray_tracing_hooks._connection.instrumentation import Lifetime
    from ray_tracing_hooks._propagators.skywalking import Local
    from ray_tracing_hooks._ray.cluster import Cluster
    from ray_tracing_hooks._ray.driver import DriverTrace
    from ray_tracing_hooks._ray.process import RayProcess
    from ray_tracing_hooks._ray.tracing import Tracing
    from ray_tracing_hooks._record.recorder import Recorder
    from ray_tracing_hooks._settings.table import Settings
    from ray_tracing_hooks._ship.sinks.skywalking_settings import Settings as SkyWalking


PROPAGATOR = "ray_tracing_hooks._propagators.skywalking"
"""Imported where ``OTEL_PROPAGATORS`` names it."""


class Configuration(NamedTuple):
    """What is set for a connection, until a command changes it.

    Attributes:
        exporters: The exporters of the hook, or None for those of the settings.
        records: Whether spans are recorded.
    """

    settings: Settings
    environ: Mapping[str, str]
    exporters: tuple[str, ...] | None
    records: bool

    def __repr__(self) -> str:
        # Without variables, which may be secrets.
        return f"Configuration({self.settings}, {self.exporters}, {self.records})"


class Connection:
    """Tracing of this process from ``ray.init`` to ``ray.shutdown``.

    Args:
        of_ray: Whether Ray itself is traced; if not, only spans made with OpenTelemetry are recorded.
    """

    def __init__(
        self,
        process: RayProcess,
        cluster: Cluster,
        configuration: Configuration,
        lifetime: Lifetime,
        *,
        of_ray: bool,
    ) -> None:
        settings, environ, exporters, records = configuration
        patches = lifetime.patches
        self.process = process
        self.settings = settings
        self._cluster = cluster
        self._records = records
        self._patches, self._lasting_patches = patches, lifetime.lasting_patches
        self._tracing: Tracing | None = None
        self._trace: DriverTrace | None = None
        self._leave_logs: Callable[[], None] = lambda: None
        self._earlier: WeakSet[Recorder] = WeakSet()
        """The recorders before changes, as long as spans of theirs are open."""
        self.delivery = delivery = Delivery(process, settings, environ, exporters)
        self._recording = Recording(process, environ, delivery, settings, of_ray=of_ray, records=records)
        self._environ = environ
        self._of_replica: Mapping[str, str] = {}
        self._join_skywalking(patches)
        if of_ray:
            from ray_tracing_hooks._connection.instrumentation import instrument  # noqa: PLC0415

            self._tracing = instrument(
                process,
                cluster,
                settings,
                self._recording.recorder,
                lifetime,
                makes_spans=delivery.spool is not None,
            )
            self._name_deployments()
            if process.is_driver:
                from ray_tracing_hooks._ray.driver import DriverTrace  # noqa: PLC0415

                self._trace = DriverTrace(self._tracing, cluster, settings)
        self._join_libraries(environ)
        if not records:
            if process.is_driver and not process.is_internal:
                logger.info("ray_tracing_hooks: tracing of this cluster is off (`ray-tracing-hooks enable`)")
            return
        if self._trace is not None and delivery.spool is not None and not process.is_internal:
            self._trace.begin_where_it_begins(environ, patches)
        # If this or what follows fails, the connection still records, and delivers at its end.
        delivery.begin()
        if process.is_driver and not process.is_internal:
            with guarded("finding out where spans go"):
                delivery.say(self._recording.recorder.sampler)

    def change(self, configuration: Configuration) -> bool:
        """Continue with other settings, or begin or stop to record; returns whether spans are recorded now: they are
        not where there is no exporter. Spans that are open end, and are delivered, as they began. May be called in any
        thread, while the program runs.
        """
        settings, environ, exporters, records = configuration
        if self._tracing is None:
            return records
        from ray_tracing_hooks._connection.instrumentation import change  # noqa: PLC0415
        from ray_tracing_hooks._control.control import SAMPLER  # noqa: PLC0415  rare

        process, before = self.process, self._recording
        delivery = Delivery(process, settings, environ, exporters)
        if delivery.spool is None and delivery.plan.exporters:
            raise OSError("there is no spool for these settings, so those before stay")
        if delivery.spool is None:
            # As where nothing has been recorded from the beginning.
            environ, records = copied(environ) | {SAMPLER: "always_off"}, False
        if delivery.spool is not None and (delivery.spool, delivery.plan) != (self.delivery.spool, self.delivery.plan):
            recording = Recording(process, environ, delivery, settings, of_ray=True, records=records)
            recording.recorder.fallback = before.recorder.fallback
            if self._of_replica:
                recording.say(self._of_replica)
            # A library may still have the recorder for something that goes on.
            before.sample(settings, environ, records=records)
        else:
            recording, delivery = before, self.delivery
            recording.sample(settings, environ, records=records)
        has_begun = records and delivery.spool is not None and not (self._records and self.delivery.spool is not None)
        self._recording, self.delivery, self._records = recording, delivery, records

        def first(tracing: Tracing) -> None:
            if self._trace is not None:
                self._trace.change(tracing)
                if has_begun and not process.is_internal:
                    self._trace.begin_late(environ)

        self._tracing = change(
            self._tracing,
            settings,
            recording.recorder,
            self._patches,
            before=self.settings,
            makes_spans=delivery.spool is not None,
            first=first,
        )
        self.settings, self._environ = settings, environ
        self._join_libraries(environ, continues=True)
        if delivery.spool is None:
            return records
        if recording is not before:
            delivery.reinstate()
            self._leave(before)
        if records:
            delivery.begin()
        return records

    def _leave(self, recording: Recording) -> None:
        """Write no more to these spools than the ends of the spans that are open."""
        self._earlier.add(recording.recorder)
        close(recording.writer)
        recording.delivery.retire(self.delivery)
        if self.process.is_driver and recording.writer.directory != os.devnull:
            deliver_at_exit(recording.writer, recording.delivery)

    def _join_skywalking(self, patches: Patches) -> None:
        """Before Ray is instrumented, which depends on the propagators."""
        if not self.delivery.joins_skywalking and PROPAGATOR not in sys.modules:
            return
        from ray_tracing_hooks._propagators import skywalking  # noqa: PLC0415  few programs need them

        with guarded("joining the traces of SkyWalking"):
            skywalking.become(self._local())
            if self.delivery.joins_skywalking:
                patches.on_undo(skywalking.install(self._of_skywalking.protocol))

    @property
    def _of_skywalking(self) -> SkyWalking:
        from ray_tracing_hooks._ship.sinks.skywalking_settings import Settings  # noqa: PLC0415  few programs need them

        return self.settings.of(Settings)

    def _local(self) -> Local:
        """What SkyWalking's headers say of this process."""
        from ray_tracing_hooks._propagators import skywalking  # noqa: PLC0415  as above

        return skywalking.Local.of(
            self._of_skywalking,
            self._recording.resource,
            self.delivery.spool,
            is_reported=SKYWALKING in self.delivery.plan.exporters,
        )

    def _name_deployments(self) -> None:
        """Where each deployment is a service of SkyWalking's: tell the instrumentation so."""
        if self._tracing is None or not self.delivery.joins_skywalking:
            return
        settings = self._of_skywalking
        if settings.deployment_service and settings.protocol != "sw6":
            self._tracing.service = self._local().identity.service
            self._tracing.on_replica = self._become_replica

    def _become_replica(self, deployment: str, application: str) -> None:
        """Say of this process from now on that it is a replica of this deployment."""
        from ray_tracing_hooks._propagators import skywalking  # noqa: PLC0415  as above

        self._of_replica = {names.RAY_SERVE_DEPLOYMENT: deployment, names.RAY_SERVE_APPLICATION: application}
        self._recording.say(self._of_replica)
        skywalking.become(self._local())
        self._name_deployments()
        self._join_libraries(self._environ, continues=True)

    def _join_libraries(self, environ: Mapping[str, str], *, continues: bool = False) -> None:
        """Record spans made with the OpenTelemetry API, instrument libraries, and record log records.

        ``continues`` says that the settings of this connection have changed.
        """
        if self.delivery.spool is None:
            return
        recording = self._recording
        bridge.install(
            recording.recorder,
            recording.writer,
            recording.resource,
            self._lasting_patches,
            self.delivery.targets,
            environ=environ,
            records=self._records,
            continues=continues,
            end_root=self._trace.end if self._trace is not None else None,
        )
        if self._records and (self.settings.instrument or self.settings.threads):
            from ray_tracing_hooks._sdk import instrumentors  # noqa: PLC0415

            instrumentors.instrument(self.settings.instrument, environ, report)
            if self.settings.threads:
                instrumentors.instrument(["threading"], environ, report, setting="RAY_TRACING_THREADS")
        if self.settings.logs:
            with guarded("correlating logs with traces"):
                self._join_logs(encode.resource(recording.resource))

    def _join_logs(self, resource: bytes) -> None:
        from ray_tracing_hooks import _logs  # noqa: PLC0415

        parts = self.settings.logs
        if problem := unmet(self.settings, self.delivery.plan.exporters).get("logs"):
            report(problem)
        # Formats of the program may name the ids, so records have them in any case.
        if not self.delivery.plan.log_records or not self._records:
            parts -= {"otlp"}
        skywalking_id = None
        if "tid" in parts:
            from ray_tracing_hooks._propagators.skywalking import trace_text  # noqa: PLC0415  opt-in

            skywalking_id = trace_text
        process = _logs.Correlation(self._recording.recorder, self._recording.writer, resource, skywalking_id)
        self._leave_logs = _logs.begin(parts, process, least=self.settings.logs_level)

    def end_root_span(self) -> None:
        """In a driver, end the root span and remove what the cluster keeps for the job's client."""
        if self._trace is None:
            return
        self._trace.end()
        with guarded("removing the invitation of this client from the cluster"):
            self._cluster.withdraw(cluster_ends=self.process.owns_cluster)
        with guarded("fetching the states of tasks"):
            self._keep_states()
        if self.settings.collect_to is not None and not self.process.is_client and not self.process.is_internal:
            with guarded("collecting spans"):
                collect(self.process, self.settings, self.delivery)

    def _keep_states(self) -> None:
        """Fetch the states of tasks if the cluster ends with this driver and its spans go to local files."""
        folders, seconds = self.delivery.folders(), self.settings.states_timeout
        if folders is None or folders[1] is None or not seconds or not self.process.owns_cluster:
            return
        from ray_tracing_hooks._ray.states import keep_at_the_end  # noqa: PLC0415  nothing of Ray at import

        keep_at_the_end(self.process.gcs_address, folders[1], seconds)

    @property
    def hook(self) -> str:
        """The name of the cluster's hook; empty if it is not known, as in a Ray Client."""
        return self._cluster.hook

    def trace_id(self) -> str:
        """The trace id of this driver's root span, empty if it has none."""
        root = self._trace.root if self._trace is not None else None
        return f"{root.get_span_context().trace_id:032x}" if root is not None else ""

    def stop(self) -> None:
        """Stop recording, and in a driver wait for the delivery of what has been recorded."""
        if self.delivery.spool is not None:
            exit_in_order([self._recording.writer])
        self._end(until_writers_end=False)

    def disable_after_fork(self) -> None:
        """Stop tracing Ray in a forked child, which keeps only the spool for its own spans."""
        self._stop_tracing()
        for recorder in (self._recording.recorder, *self._earlier):
            recorder.disable_after_fork()

    def close(self) -> None:
        """Stop tracing Ray, and in a driver wait for the delivery of this node's spans.

        Spans of the OpenTelemetry API are still recorded: a user's span may end after ``ray.shutdown()``.
        """
        self._end(until_writers_end=self.process.owns_cluster)
        if self.process.is_driver and not self.process.is_internal:
            with guarded("suggesting the next command"):
                self.delivery.say_next()
        if self.process.is_driver and self.delivery.spool is not None:
            deliver_at_exit(self._recording.writer, self.delivery)

    def _stop_tracing(self) -> None:
        """From now on, wrappers that are still in place only call the original."""
        from ray_tracing_hooks._ray import tracing  # noqa: PLC0415

        tracing.active = None
        if self._tracing is not None:
            self._tracing.job.close()

    def _end(self, *, until_writers_end: bool) -> None:
        self._stop_tracing()
        if self._trace is not None:
            self._trace.put_sigterm_back()
        self._leave_logs()
        if self.delivery.spool is None:
            return
        close(self._recording.writer)
        if self.process.is_driver:
            self.delivery.flush(until_writers_end=until_writers_end)
