"""The progress file of the tail sampler, which lets the next shipper continue without losing or repeating a span."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from ray_tracing_hooks._guard import describe
from ray_tracing_hooks._private import write_atomically
from ray_tracing_hooks._ship.files import read_patiently
from ray_tracing_hooks._ship.problems import logger

FILE = "sifted.json"
"""The name of the file in the spool folder."""


@dataclass(frozen=True)
class SamplerProgress:
    """The progress of a tail sampler. Segments are named without their folder.

    Attributes:
        published: The segment of kept spans that takes effect with this progress.
        read: The offset up to which each segment of undecided spans has been read.
        closed: The processes whose open spans have been closed because they died. Those of kept traces were written.
        kept: The reasons of kept traces, by trace id.
        collecting: The traces whose spans are being collected.
        collect: The segments that still have spans of these, each with an end offset.
    """

    published: str = ""
    read: Mapping[str, int] = field(default_factory=dict)
    closed: AbstractSet[str] = frozenset()
    kept: Mapping[bytes, str] = field(default_factory=dict)
    collecting: AbstractSet[bytes] = frozenset()
    collect: Sequence[tuple[str, int]] = ()

    def store(self, within: str) -> None:
        """Replace the file in the spool folder ``within``. Raises OSError."""
        found = {
            "published": self.published,
            "read": dict(self.read),
            "closed": sorted(self.closed),
            "kept": {trace_id.hex(): reason for trace_id, reason in self.kept.items()},
            "collecting": sorted(map(bytes.hex, self.collecting)),
            "collect": list(self.collect),
        }
        write_atomically(os.path.join(within, FILE), json.dumps(found).encode())


def load(within: str) -> SamplerProgress:
    """The progress that an earlier shipper has stored; a malformed file is logged and counts as empty."""
    try:
        found: dict[str, Any] = json.loads(read_patiently(os.path.join(within, FILE)))
        return SamplerProgress(
            published=str(found["published"]),
            read={str(segment): int(offset) for segment, offset in found["read"].items()},
            closed=frozenset(map(str, found["closed"])),
            kept={bytes.fromhex(trace_id): str(reason) for trace_id, reason in found["kept"].items()},
            collecting=frozenset(map(bytes.fromhex, found["collecting"])),
            collect=[(str(segment), int(end)) for segment, end in found["collect"]],
        )
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        logger.warning("the progress in %r is malformed, starting anew: %s", FILE, describe(error))
    return SamplerProgress()
