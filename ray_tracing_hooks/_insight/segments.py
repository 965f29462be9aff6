"""Reading the segments of a spool into columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ray_tracing_hooks._insight import read as reading
from ray_tracing_hooks._insight.columns import Columns
from ray_tracing_hooks._insight.model import Span


def read_segments(
    paths: Sequence[str], quality: reading.Quality, on_bytes: Callable[[int], None]
) -> list[tuple[str, Columns]]:
    """What each of the segments holds. What is wrong goes into ``quality``."""
    found: list[tuple[str, Columns]] = []
    gathered = _Gathered(quality)
    for path in paths:
        gathered.columns = Columns()
        found.append((path, gathered.columns))
        quality.files += 1
        try:
            reading.read_segment(path, gathered)
            on_bytes(os.path.getsize(path))
        except FileNotFoundError:
            quality.files -= 1  # delivered since the folder was listed
        except reading.UNREADABLE as error:
            quality.bad(path, 0, str(getattr(error, "strerror", None) or error))
    return found


class _Gathered(reading.Gathered):
    """Takes spans into columns. Those that are in a segment can be read again from there."""

    def __init__(self, quality: reading.Quality) -> None:
        super().__init__()
        self.quality = quality
        self.columns = Columns()

    def add(self, span: Span, offset: int = -1) -> None:
        self.columns.add_span(span, opening=not span.end_ns, offset=offset)
