"""The figures of a spool's delivery at one moment, and the file in which its shipper stores them.

``status.json`` in a spool folder is one JSON object with the fields of :class:`Figures`. The counts begin with the
shipper, as those of any process do: a shipper that takes over from a killed one begins at zero. The modification time
of the file says when the shipper was last at work, within a few seconds, even where the figures have not changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from ray_tracing_hooks._safety.private import read_file
from ray_tracing_hooks._ship.files import STATUS, successor_of

VERSION = 1


@dataclass
class DestinationFigures:
    """The figures of one exporter and signal. Times are in nanoseconds since the epoch; 0 means never.

    A shipper counts in them.

    Attributes:
        exporter: The name of the exporter.
        signal: ``traces`` or ``logs``: what the counts are of, spans or log records.
        address: Where it delivers to, without credentials.
        received: How many were read from the spool.
        delivered: How many were accepted.
        delivered_bytes: Their size as encoded spans, before compression.
        refused: How many will never be accepted, and are lost.
        dropped: How many the spool's limit removed before they were delivered, so that they are lost.
        retries: How many attempts failed and were repeated.
        waiting: How many wait in the spool.
        waiting_bytes: The bytes of the spool that have not been delivered.
        is_estimate: Whether ``waiting`` is extrapolated from a part of these bytes.
        oldest_ns: When the oldest of those that wait ended; 0 if none waits, or it is unknown.
        delivered_ns: When something was last delivered.
        failed_ns: When an attempt last failed.
        error: What the last failed attempt reported.
        is_failing: Whether the last attempt failed.
    """

    exporter: str = ""
    signal: str = "traces"
    address: str = ""
    received: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    refused: int = 0
    dropped: int = 0
    retries: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    is_estimate: bool = False
    oldest_ns: int = 0
    delivered_ns: int = 0
    failed_ns: int = 0
    error: str = ""
    is_failing: bool = False

    def age(self, now_ns: int) -> float:
        """How long ago the oldest span that waits has ended, in seconds; 0 if none waits."""
        return max(0.0, (now_ns - self.oldest_ns) / 1e9) if self.oldest_ns else 0.0


@dataclass(frozen=True)
class Figures:
    """The figures of one spool.

    Attributes:
        version: The version of this layout.
        release: The version of the package.
        pid: The process of the shipper.
        began_ns: When the shipper began, and with it the counts.
        updated_ns: When these figures were taken.
        writers: How many processes write to the spool.
        bytes: The size of its segments.
        limit_bytes: The most that undelivered ones may take.
        unwritten: How many spans their processes could not write, since the disk was full or failed.
        destinations: One for each exporter and signal.
        problems: What prevents delivery or looks wrong at present, as sentences.
        messages: The latest messages to the user: problems that lasted some seconds, their ends, and losses. A process
            that records spans logs each once.
    """

    version: int = VERSION
    release: str = ""
    pid: int = 0
    began_ns: int = 0
    updated_ns: int = 0
    writers: int = 0
    bytes: int = 0
    limit_bytes: int = 0
    unwritten: int = 0
    destinations: tuple[DestinationFigures, ...] = ()
    problems: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()

    @property
    def delivered(self) -> int:
        """How many spans were delivered. Of several destinations, each gets the same spans."""
        return max((each.delivered for each in self.destinations), default=0)

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def read(spool_dir: str) -> Figures | None:
    """What the shipper of this spool folder has stored last; None if it has stored nothing, or nothing readable.

    What is missing in it has its default, and what is unknown is left out.
    """
    try:
        found = json.loads(read_file(os.path.join(spool_dir, STATUS)))
        destinations = tuple(_made(DestinationFigures, each) for each in found.get("destinations", ()))
        texts = {name: tuple(found.get(name, ())) for name in ("problems", "messages")}
        return _made(Figures, {**found, **texts, "destinations": destinations})
    except (OSError, ValueError, AttributeError, TypeError):
        return None


T = TypeVar("T")


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]  # both are dataclasses
    return kind(**{name: value for name, value in values.items() if name in names})


def is_reached(spool_dir: str, figures: Figures, exporter: str) -> bool:
    """Whether a change of settings also changes how this exporter delivers what waits in this spool: its processes run,
    or have gone on to another spool. Local files go to the folder that they were meant for.
    """
    return exporter != "local" and (figures.writers > 0 or bool(successor_of(spool_dir)))
