"""What records the spans of a process, into its spool."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import report

if TYPE_CHECKING:
    from ray_tracing_hooks._connection.delivery import Delivery
    from ray_tracing_hooks._ray.process import RayProcess


class Recording:
    """The recorder of this process and the spool files that it writes.

    Args:
        process: This process.
        environ: Its environment variables.
        delivery: What becomes of what is recorded.
        cap: The most bytes of a spool.

    Attributes:
        known: The attributes of the Resource.
        recorder: What records.
        writer: What writes the files of the spool.
        undecided: The same for traces that are not sampled and that may be kept all the same, if there are any.
    """

    def __init__(self, process: RayProcess, environ: Mapping[str, str], delivery: Delivery, cap: int) -> None:
        from ray_tracing_hooks._record import sampling, wire  # noqa: PLC0415
        from ray_tracing_hooks._record.limits import SpanLimits  # noqa: PLC0415
        from ray_tracing_hooks._record.recorder import Recorder  # noqa: PLC0415
        from ray_tracing_hooks._sdk import resource  # noqa: PLC0415
        from ray_tracing_hooks._spool.layout import UNDECIDED  # noqa: PLC0415
        from ray_tracing_hooks._spool.writer import SpoolWriter, segment_bytes  # noqa: PLC0415

        limits = SpanLimits.from_environment(environ)
        sampler = sampling.from_environment(environ)
        if sampler is None:
            from ray_tracing_hooks._sdk.sampling import from_sdk  # noqa: PLC0415

            sampler = from_sdk()
        self.known = known = resource.attributes(process.resource_attributes(), environ)
        of_child = resource.of_child(known)
        encoded = wire.resource(known)

        def recorder_of(writer: SpoolWriter) -> Recorder:
            return Recorder(
                writer,
                resource=encoded,
                scope=wire.scope(names.SCOPE, known[names.DISTRO_VERSION]),
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

        self._spool = delivery.spool
        self.writer = spool_writer(self._spool or os.devnull, cap)
        self.recorder = recorder_of(self.writer)
        self.undecided: SpoolWriter | None = None
        if delivery.plan.keeps and self._spool is not None:
            # In smaller segments, since what is kept is read again.
            self.undecided = spool_writer(os.path.join(self._spool, UNDECIDED), cap // 16)
            self.recorder.undecided = recorder_of(self.undecided)

    def close(self) -> bool:
        """Let go of the spool; whether there was something to let go of."""
        from ray_tracing_hooks._spool.writer import LAST_WORD_SECONDS  # noqa: PLC0415  as above

        writers = [writer for writer in (self.writer, self.undecided) if writer is not None]
        was_open = any(writer.is_open for writer in writers)
        until = time.monotonic() + LAST_WORD_SECONDS
        for writer in writers:
            writer.close(until)
        return was_open

    def folders(self) -> list[str]:
        """The folders that are written to."""
        assert self._spool is not None
        return [self._spool] + ([self.undecided.directory] if self.undecided is not None else [])
