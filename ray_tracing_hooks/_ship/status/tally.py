"""What one stage has done since its shipper began. Its thread counts, and other threads read."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ray_tracing_hooks._ship.sink import Batch


class Tally:
    """The counts of one destination: spans, or log records, and attempts.

    Attributes:
        received: How many have been read from the spool.
        delivered: How many the destination has accepted.
        delivered_bytes: Their size as encoded spans, before compression.
        refused: How many the destination will never accept.
        dropped: How many were removed from the spool before they were delivered, since it reached its limit.
        retries: How many attempts failed and were repeated.
        delivered_ns: When the last attempt succeeded, in nanoseconds since the epoch; 0 before the first.
        failed_ns: When the last attempt failed; 0 before the first.
        error: What the last failed attempt reported.
        is_failing: Whether the last attempt failed.
    """

    def __init__(self) -> None:
        self.received = self.delivered = self.delivered_bytes = 0
        self.refused = self.dropped = self.retries = 0
        self.delivered_ns = self.failed_ns = 0
        self.error = ""
        self.is_failing = False

    def read(self, batches: Sequence[Batch]) -> None:
        """Count a portion that has been read from the spool."""
        self.received += sum(len(batch.spans) for batch in batches)

    def accepted(self, batches: Sequence[Batch], size: int, refused: int) -> None:
        """Count a portion of ``size`` bytes that has been handed over, and of which this many items were refused."""
        self.delivered += max(0, sum(len(batch.spans) for batch in batches) - refused)
        self.delivered_bytes += size
        self.delivered_ns = time.time_ns()
        self.is_failing = False

    def failed(self, error: str) -> None:
        """Count an attempt that failed."""
        self.retries += 1
        self.failed_ns = time.time_ns()
        self.error = error
        self.is_failing = True

    def recovered(self) -> None:
        """The last attempt did not fail."""
        self.is_failing = False
