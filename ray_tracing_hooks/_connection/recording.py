"""What records the spans of a process, into its spool."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import report

if TYPE_CHECKING:
    from ray_tracing_hooks._connection.delivery import Delivery
    from ray_tracing_hooks._ray.process import RayProcess
    from ray_tracing_hooks._settings import Settings
    from ray_tracing_hooks._spool.writer import SpoolWriter


class Recording:
    """The recorder of this process and the spool files that it writes.

    Args:
        process: This process.
        environ: Its environment variables.
        delivery: What becomes of what is recorded.
        settings: Of them the most bytes of a spool, and which parts of Ray make spans.
        of_ray: Whether Ray makes any.

    Attributes:
        known: The attributes of the Resource.
        recorder: What records.
        writer: What writes the files of the spool.
        undecided: The same for traces that are not sampled and that may be kept all the same, if there are any.
    """

    def __init__(
        self,
        process: RayProcess,
        environ: Mapping[str, str],
        delivery: Delivery,
        settings: Settings,
        *,
        of_ray: bool,
    ) -> None:
        from ray_tracing_hooks._formats.encoded_span import encode  # noqa: PLC0415
        from ray_tracing_hooks._record import sampling  # noqa: PLC0415
        from ray_tracing_hooks._record.limits import SpanLimits  # noqa: PLC0415
        from ray_tracing_hooks._record.recorder import Recorder  # noqa: PLC0415
        from ray_tracing_hooks._sdk import resource  # noqa: PLC0415
        from ray_tracing_hooks._spool.layout import UNDECIDED  # noqa: PLC0415
        from ray_tracing_hooks._spool.writer import SpoolWriter, segment_bytes  # noqa: PLC0415

        limits = SpanLimits.from_environment(environ)
        sampler = sampling.from_environment(environ)
        if sampler is None:
            from ray_tracing_hooks._sdk.foreign_samplers import from_sdk  # noqa: PLC0415

            sampler = from_sdk()
        cap = settings.spool_max_bytes
        told = process.resource_attributes()
        if of_ray:
            # What is missing among the spans of a process cannot be told from them.
            told[names.RESOURCE_PARTS] = ",".join(sorted(settings.ray) + ["internal"] * settings.internal)
        self.known = known = resource.attributes(told, environ)
        of_child = resource.of_child(known)
        encoded = encode.resource(known)

        def recorder_of(writer: SpoolWriter) -> Recorder:
            return Recorder(
                writer,
                resource=encoded,
                scope=encode.scope(names.SCOPE, known[names.DISTRO_VERSION]),
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
        if delivery.plan.keeps and delivery.spool is not None:
            # In smaller segments, since what is kept is read again.
            self.undecided = spool_writer(os.path.join(delivery.spool, UNDECIDED), cap // 16)
            self.recorder.undecided = recorder_of(self.undecided)

    def close(self) -> None:
        """Let go of the spool."""
        close(self.writers())

    def writers(self) -> list[SpoolWriter]:
        """What writes the files of the spool."""
        return [writer for writer in (self.writer, self.undecided) if writer is not None]


def exit_in_order(writers: Iterable[SpoolWriter]) -> None:
    """Write that this process ends in good order, if there are spans of the API that it has not ended."""
    bridge = sys.modules.get("ray_tracing_hooks._sdk.bridge")
    if bridge is not None and bridge.has_open_spans():
        for writer in writers:
            writer.exit()


def close(writers: Iterable[SpoolWriter]) -> None:
    """Let go of the spool, and wait a moment for room to say what a full disk did not take."""
    from ray_tracing_hooks._spool.writer import LAST_WORD_SECONDS  # noqa: PLC0415  as above

    until = time.monotonic() + LAST_WORD_SECONDS
    for writer in writers:
        writer.close(until)
