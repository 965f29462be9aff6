"""The recorder and the spool writers of a process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._guard import report

if TYPE_CHECKING:
    from ray_tracing_hooks._connection.delivery import Delivery
    from ray_tracing_hooks._ray.process import RayProcess
    from ray_tracing_hooks._record.recorder import Recorder
    from ray_tracing_hooks._record.sampling import Sampler
    from ray_tracing_hooks._settings import Settings
    from ray_tracing_hooks._spool.writer import SpoolWriter


class Recording:
    """The recorder of this process and the spool files that it writes.

    Args:
        process: This process.
        environ: Its environment variables.
        delivery: The delivery of what is recorded.
        settings: Its settings.
        of_ray: Whether Ray is traced.
        records: Whether what begins now is recorded.

    Attributes:
        delivery: The delivery of what is recorded.
        resource: The attributes of the Resource.
        recorder: The recorder for spans of Ray.
        writer: The spool writer.
        undecided: The writer for spans that are not sampled but that tail sampling may keep; None without it.
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
        from ray_tracing_hooks._formats.encoded_span import encode  # noqa: PLC0415
        from ray_tracing_hooks._record.limits import SpanLimits  # noqa: PLC0415
        from ray_tracing_hooks._record.recorder import Recorder  # noqa: PLC0415
        from ray_tracing_hooks._sdk import resource  # noqa: PLC0415
        from ray_tracing_hooks._spool.layout import UNDECIDED  # noqa: PLC0415
        from ray_tracing_hooks._spool.writer import SpoolWriter, segment_bytes  # noqa: PLC0415

        self.delivery = delivery
        limits = SpanLimits.from_environment(environ)
        sampler = _sampler(environ)
        cap = settings.spool_max_bytes
        ray_attributes = process.resource_attributes()
        if of_ray:
            # A reader cannot infer from the spans which parts are not traced.
            further = ["internal"] * settings.internal + ["selected"] * bool(settings.include or settings.exclude)
            ray_attributes[names.RESOURCE_PARTS] = ",".join(sorted(settings.ray) + further)
        self.resource = attributes = resource.attributes(ray_attributes, environ)
        of_child = resource.of_child(attributes)
        encoded = encode.resource(attributes)
        self._scope = encode.scope(names.SCOPE, attributes[names.DISTRO_VERSION])

        def recorder_of(writer: SpoolWriter) -> Recorder:
            return Recorder(
                writer,
                resource=encoded,
                scope=self._scope,
                sampler=sampler,
                limits=limits,
            )

        def spool_writer(folder: str, cap: int) -> SpoolWriter:
            return SpoolWriter(
                folder,
                segment_bytes=segment_bytes(cap),
                on_problem=report,
                watch=delivery.keep_shipped,
                of_child=of_child,
            )

        self.writer = spool_writer(delivery.spool or os.devnull, cap)
        self.recorder = recorder_of(self.writer)
        self.undecided: SpoolWriter | None = None
        self._of_undecided: Recorder | None = None
        if delivery.plan.keeps and delivery.spool is not None:
            # In smaller segments, since tail sampling reads again what it keeps.
            self.undecided = spool_writer(os.path.join(delivery.spool, UNDECIDED), cap // 16)
            self._of_undecided = recorder_of(self.undecided)
            self.recorder.undecided = self._of_undecided if records else None

    def say(self, attributes: Mapping[str, Any]) -> None:
        """Add these attributes to the Resource of what ends from now on."""
        from ray_tracing_hooks._formats.encoded_span import encode  # noqa: PLC0415

        self.resource = {**self.resource, **attributes}
        for recorder in (self.recorder, self._of_undecided):
            if recorder is not None:
                recorder.say(encode.resource(self.resource), self._scope)

    def sample(self, environ: Mapping[str, str], *, records: bool) -> None:
        """Sample what begins from now on as ``environ`` says; without ``records``, record nothing of it.

        What calls have cached of the sampler is found anew, since it is another one.
        """
        sampler = _sampler(environ)
        self.recorder.undecided = self._of_undecided if records else None
        if self._of_undecided is not None:
            self._of_undecided.sampler = sampler
        self.recorder.sampler = sampler

    def close(self) -> None:
        """Close the spool writers."""
        close(self.writers())

    def writers(self) -> list[SpoolWriter]:
        """The spool writers."""
        return [writer for writer in (self.writer, self.undecided) if writer is not None]


def _sampler(environ: Mapping[str, str]) -> Sampler:
    from ray_tracing_hooks._record import sampling  # noqa: PLC0415  as above

    sampler = sampling.from_environment(environ)
    if sampler is None:
        from ray_tracing_hooks._sdk.foreign_samplers import from_sdk  # noqa: PLC0415  few programs name such a one

        sampler = from_sdk()
    return sampler


def exit_in_order(writers: Iterable[SpoolWriter]) -> None:
    """If spans of the API are still open, record that this process ends regularly."""
    bridge = sys.modules.get("ray_tracing_hooks._sdk.bridge")
    if bridge is not None and bridge.has_open_spans():
        for writer in writers:
            writer.exit()


def close(writers: Iterable[SpoolWriter]) -> None:
    """Close the writers; if the disk is full, wait a moment for room to write the count of dropped spans."""
    from ray_tracing_hooks._spool.writer import LAST_WORD_SECONDS  # noqa: PLC0415  as above

    until = monotonic() + LAST_WORD_SECONDS
    for writer in writers:
        writer.close(until)
