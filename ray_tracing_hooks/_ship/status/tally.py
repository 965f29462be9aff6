"""What one stage has done since its shipper began. Its thread counts, and other threads read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ray_tracing_hooks._ship.sink import Batch


class Tally:
    """The counts of one destination: spans, or log records, and attempts.

    ``ended`` returns when an encoded item ended.
    """

    def __init__(self, ended: Callable[[bytes], int]) -> None:
        self._ended = ended
        self.dropped = 0
        """How many were removed from the spool before they were read, since it reached its limit."""
        self.resource = b""
        """The encoded resource of the first item that was read."""
        self._received = self._delivered = self._delivered_bytes = self._refused = self._retries = 0
        self._delivered_ns = self._failed_ns = 0
        self._error = ""
        self._is_failing = False
        self._oldest_ns = 0

    @property
    def in_hand(self) -> int:
        """How many have been read from the spool, and neither been accepted nor refused yet."""
        return self._received - self._delivered - self._refused

    @property
    def oldest_ns(self) -> int:
        """When the first of those ended, in nanoseconds since the epoch; 0 if there is none."""
        return self._oldest_ns if self.in_hand else 0

    def read(self, batches: Sequence[Batch]) -> None:
        """Count a portion that has been read from the spool."""
        if not self.in_hand and batches and batches[0].spans:
            self._oldest_ns = self._ended(batches[0].spans[0])
        if not self.resource and batches:
            self.resource = batches[0].resource
        self._received += sum(len(batch.spans) for batch in batches)

    def refused(self, count: int) -> None:
        """Count items that the destination will never accept."""
        self._refused += min(count, self.in_hand)

    def accepted(self, size: int) -> None:
        """The destination has accepted all that is in hand, of ``size`` bytes."""
        self._delivered += self.in_hand
        self._delivered_bytes += size
        self._delivered_ns = time.time_ns()
        self._is_failing = False

    def failed(self, error: str) -> None:
        """Count an attempt that failed."""
        self._retries += 1
        self._failed_ns = time.time_ns()
        self._error = error
        self._is_failing = True

    def recovered(self) -> None:
        """The last attempt did not fail."""
        self._is_failing = False

    def counts(self) -> dict[str, Any]:
        """The counts, by the fields of :class:`~ray_tracing_hooks._ship.status.figures.Destination`."""
        return {
            "received": self._received,
            "delivered": self._delivered,
            "delivered_bytes": self._delivered_bytes,
            "refused": self._refused,
            "dropped": self.dropped,
            "retries": self._retries,
            "delivered_ns": self._delivered_ns,
            "failed_ns": self._failed_ns,
            "error": self._error,
            "is_failing": self._is_failing,
        }
