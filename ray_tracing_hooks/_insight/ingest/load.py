"""Reads files into a table; large inputs are split into parts that several processes read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ray_tracing_hooks._insight.ingest.kept_runs import KeptQuality
from ray_tracing_hooks._insight.ingest.parallel import collector_paused, parts_of, read_parts
from ray_tracing_hooks._insight.ingest.reread import Lines
from ray_tracing_hooks._insight.ingest.spool import segments_of
from ray_tracing_hooks._insight.model.columns import Columns
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._spool.layout import SUFFIX


def load(
    paths: Sequence[str], on_bytes: Callable[[int], None] = lambda _count: None, lines: Lines | None = None
) -> Table:
    """The spans of the files that :func:`~ray_tracing_hooks._insight.ingest.files.span_files` found.

    Damage is counted in ``table.quality`` and never raised. Several processes read large inputs. This process calls
    ``on_bytes`` with the number of bytes read since the previous call. ``lines`` gets where each span was read.
    """
    with collector_paused():
        quality, kept = Quality(), KeptQuality(paths)
        table = Table(_read(paths, quality, on_bytes), quality, kept.now_ns, lines or Lines())
        kept.add_to(quality)
        return table


def read(paths: Sequence[str], on_bytes: Callable[[int], None] = lambda _count: None) -> tuple[list[Span], Quality]:
    """The spans of these files by start, with all that they have, and what is wrong with them.

    Of several records of one span, one is kept: a record with an end wins over one without, a recorded end over an
    estimated one, then the later end.
    """
    table = load(paths, on_bytes)
    with collector_paused():
        spans = {row: table.span(row) for row in table.as_recorded(range(len(table)))}
        return [spans[row] for row in range(len(table))], table.quality


def _read(paths: Sequence[str], quality: Quality, on_bytes: Callable[[int], None]) -> Iterator[tuple[str, Columns]]:
    opened, parts = segments_of([path for path in paths if path.endswith(SUFFIX)], quality)
    yield "", opened
    parts += parts_of([path for path in paths if not path.endswith(SUFFIX)], quality)
    for part, columns in read_parts(parts, quality, on_bytes):
        yield part.path, columns
