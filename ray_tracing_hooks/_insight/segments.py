"""Reading the segments of a spool into columns."""

from __future__ import annotations

from collections.abc import Sequence

from ray_tracing_hooks._insight import read as reading
from ray_tracing_hooks._insight.columns import Columns, Part
from ray_tracing_hooks._insight.model import Span


def segments_of(paths: Sequence[str], quality: reading.Quality) -> tuple[Columns, list[Part]]:
    """The segments, each with whether its process lives, and the spans that their folders say are open besides.

    That is asked here, before any of them is read: what a dead process wrote is all there.
    """
    gathered = _Gathered(Columns(quality))
    parts = []
    for path in paths:
        try:
            parts.append(Part(path, alive=gathered.is_alive(path)))
        except FileNotFoundError:
            continue  # delivered since the folder was listed
        except reading.UNREADABLE as error:
            quality.bad(path, 0, str(getattr(error, "strerror", None) or error))
        quality.files += 1
    return gathered.columns, parts


def read_segment(part: Part) -> Columns:
    """The spans of a segment. Raises as reading a file does."""
    gathered = _Gathered(Columns(), alive=part.alive)
    reading.read_segment(part.path, gathered)
    return gathered.columns


class _Gathered(reading.Gathered):
    """Takes spans into columns. Those that are in a segment can be read again from there."""

    def __init__(self, columns: Columns, *, alive: bool | None = None) -> None:
        super().__init__()
        self.columns = columns
        self.quality = columns.quality
        self._alive = alive

    def is_alive(self, segment: str) -> bool:
        return super().is_alive(segment) if self._alive is None else self._alive

    def add(self, span: Span, offset: int = -1) -> None:
        self.columns.add_span(span, opening=not span.end_ns, offset=offset)
