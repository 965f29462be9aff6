"""The recorder and the spool writers of a process, also of connections whose spans end at its exit."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._record import sampling
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import Recorder, UnsampledRecorder
from ray_tracing_hooks._record.sampling import KeepRule, Sampler
from ray_tracing_hooks._safety.guard import guarded, report
from ray_tracing_hooks._sdk import resource
from ray_tracing_hooks._spool.writer import LAST_WORD_SECONDS, SpoolWriter, segment_bytes

if TYPE_CHECKING:
    from ray_tracing_hooks._connection.delivery import Delivery
    from ray_tracing_hooks._ray.process import RayProcess
    from ray_tracing_hooks._settings.table import Settings


class Recording:
    """The recorder of this process and the spool files that it writes.

    Args:
        records: Whether what begins now is recorded.
    """

    def __init__(
        self,
        process: RayProcess,
        environ: Mapping[str, str],
        delivery: Delivery,
        settings: Settings,
        *,
        of_ray: bool,
        records: bool = True,
    ) -> None:

        self.delivery = delivery
        ray_attributes = process.resource_attributes()
        if of_ray:
            # A reader cannot infer from the spans which parts are not traced.
            further = ["internal"] * settings.internal + ["selected"] * bool(settings.include or settings.exclude)
            ray_attributes[names.RESOURCE_PARTS] = ",".join(sorted(settings.ray) + further)
        self.resource = attributes = resource.attributes(ray_attributes, environ)
        of_child = resource.of_child(attributes)
        self._scope = encode.scope(names.SCOPE, attributes[names.DISTRO_VERSION])
        self.writer = SpoolWriter(
            delivery.spool or os.devnull,
            segment_bytes=segment_bytes(settings.spool_max_bytes),
            on_problem=report,
            watch=delivery.keep_shipped,
            of_child=of_child,
        )
        self.recorder = Recorder(
            self.writer,
            resource=encode.resource(attributes),
            scope=self._scope,
            sampler=_sampler(environ),
            limits=SpanLimits.from_environment(environ),
        )
        self._keep(settings, records=records)

    def say(self, attributes: Mapping[str, Any]) -> None:
        """Add these attributes to the Resource of what ends from now on."""
        self.resource = {**self.resource, **attributes}
        for recorder in (self.recorder, self.recorder.unsampled):
            if recorder is not None:
                recorder.say(encode.resource(self.resource), self._scope)

    def sample(self, settings: Settings, environ: Mapping[str, str], *, records: bool) -> None:
        """Sample what begins from now on as these say; without ``records``, record nothing of it.

        What calls have cached of the sampler is found anew, since it is another one.
        """
        self._keep(settings, records=records)
        self.recorder.sampler = _sampler(environ)

    def _keep(self, settings: Settings, *, records: bool) -> None:
        """Record what the settings ask for of traces that are not sampled."""
        recorder, slower = self.recorder, settings.keep_slower
        recorder.unsampled = None
        if records and (settings.keep_errors or slower is not None) and self.delivery.spool is not None:
            recorder.unsampled = UnsampledRecorder(
                self.writer,
                resource=encode.resource(self.resource),
                scope=self._scope,
                sampler=recorder.sampler,
                limits=recorder.limits,
                rule=KeepRule(settings.keep_errors, slower * 1e9 if slower is not None else None),
                of_caller=encode.resource(resource.of_caller(self.resource)),
            )


def _sampler(environ: Mapping[str, str]) -> Sampler:
    sampler = sampling.from_environment(environ)
    if sampler is None:
        from ray_tracing_hooks._settings.otel import import_sdk  # noqa: PLC0415  few programs name such a one

        import_sdk()
        from ray_tracing_hooks._sdk.tracers import from_sdk  # noqa: PLC0415  imports the SDK

        sampler = from_sdk()
    return sampler


def exit_in_order(writers: Iterable[SpoolWriter]) -> None:
    """If spans of the API are still open, record that this process ends regularly."""
    bridge = sys.modules.get("ray_tracing_hooks._sdk.bridge")
    if bridge is not None and bridge.has_open_spans():
        for writer in writers:
            writer.exit()


def close(writer: SpoolWriter) -> None:
    """Close the writer; if the disk is full, wait a moment for room to write the count of dropped spans."""
    writer.close(monotonic() + LAST_WORD_SECONDS)


_deliveries: WeakKeyDictionary[SpoolWriter, Delivery] = WeakKeyDictionary()
"""The deliveries of ended connections. A writer lives as long as an open span or the next connection may use it."""

_folders: set[str] = set()
"""The folders that the shipper leaves in place because this process may still write into them."""


def deliver_at_exit(writer: SpoolWriter, delivery: Delivery) -> None:
    """Deliver at the exit of the process whatever this writer still writes."""
    if not _folders:
        atexit.register(_deliver_last)
    _deliveries[writer] = delivery
    _folders.add(writer.directory)


def _deliver_last() -> None:
    exit_in_order(list(_deliveries))
    for writer, delivery in list(_deliveries.items()):
        if writer.is_open:
            close(writer)
            with guarded("delivering the last spans of this driver"):
                delivery.flush(until_writers_end=False)
    for folder in _folders:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
