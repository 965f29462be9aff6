"""Reads files into a table, in parts, with several processes if there is much to read."""

from __future__ import annotations

import gc
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from ray_tracing_hooks._insight.ingest.files import PARQUET, UNREADABLE, FilePart, is_one_object, reason
from ray_tracing_hooks._insight.ingest.kept_runs import KeptQuality
from ray_tracing_hooks._insight.ingest.lines import read_part
from ray_tracing_hooks._insight.ingest.parquet import read_stored
from ray_tracing_hooks._insight.ingest.reread import Lines
from ray_tracing_hooks._insight.ingest.spool import read_segment, segments_of
from ray_tracing_hooks._insight.model.columns import Columns
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._spool.layout import SUFFIX

_PART = 32 * 1024 * 1024
"""Size of the parts in which large files are read, in bytes."""

_WORTH_A_PROCESS = 24 * 1024 * 1024
"""Bytes. Starting a process takes as long as reading some megabytes."""

Answer = Columns | str | None
"""The result of reading a part: the reason if it cannot be read, None if the file is gone."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector, which would scan all spans read so far again and again. Three times as fast."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def load(paths: Sequence[str], on_bytes: Callable[[int], None] = lambda _count: None) -> Table:
    """The spans of the files that :func:`~ray_tracing_hooks._insight.ingest.files.span_files` found.

    Damage is counted in ``table.quality`` and never raised. Several processes read large inputs. This process calls
    ``on_bytes`` with the number of bytes read since the previous call.
    """
    with collector_paused():
        quality, kept = Quality(), KeptQuality(paths)
        table = Table(_columns_of(paths, quality, on_bytes), quality, kept.now_ns, Lines())
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


def _columns_of(
    paths: Sequence[str], quality: Quality, on_bytes: Callable[[int], None]
) -> Iterator[tuple[str, Columns]]:
    opened, parts = segments_of([path for path in paths if path.endswith(SUFFIX)], quality)
    yield "", opened
    parts += parts_of([path for path in paths if not path.endswith(SUFFIX)], quality)
    for part, columns in read_parts(parts, quality, on_bytes):
        yield part.path, columns


def parts_of(paths: Sequence[str], quality: Quality) -> list[FilePart]:
    """The files split into parts, in order; files that are gone are left out, but not those of a store."""
    parts: list[FilePart] = []
    for path in paths:
        try:
            size = os.path.getsize(path)
        except OSError as error:
            if _is_gone(path, error):
                continue
            quality.files += 1
            quality.incomplete(path, 0, reason(error))
            continue
        quality.files += 1
        if path.endswith((".gz", PARQUET)) or size <= _PART * 3 // 2 or is_one_object(path):
            parts.append(FilePart(path))
        else:
            begins = [*range(0, size - _PART // 2, _PART)]
            # The last part extends to the end of the file, which may have grown meanwhile.
            parts += [FilePart(path, begin, end) for begin, end in zip(begins, [*begins[1:], 0], strict=True)]
    return parts


def read_parts(
    parts: Sequence[FilePart], quality: Quality, on_bytes: Callable[[int], None]
) -> Iterator[tuple[FilePart, Columns]]:
    """The columns of each part, in order. Problems are recorded in ``quality``."""
    sizes = [_size(part) for part in parts]
    most = min(len(os.sched_getaffinity(0)), 8, sum(sizes) // _WORTH_A_PROCESS)
    answers = map(_read, parts) if most < 2 or len(parts) < 2 else _by_processes(parts, min(most, len(parts)))
    lines, path = 0, ""
    for part, size, answer in zip(parts, sizes, answers, strict=True):
        on_bytes(size)
        lines = lines if part.path == path else 0
        path = part.path
        if answer is None:
            quality.files -= not part.begin
        elif isinstance(answer, str):
            quality.incomplete(part.path, lines, answer)
        else:
            quality.include(answer.quality, lines)
            lines += answer.quality.last_line
            yield part, answer


def _size(part: FilePart) -> int:
    try:
        return (part.end or os.path.getsize(part.path)) - part.begin
    except OSError:
        return 0


def _read(part: FilePart) -> Answer:
    try:
        if part.path.endswith(PARQUET):
            return read_stored(part)
        return read_segment(part) if part.path.endswith(SUFFIX) else read_part(part)
    except UNREADABLE as error:
        return None if _is_gone(part.path, error) else reason(error)


def _is_gone(path: str, error: Exception) -> bool:
    """Whether a file was removed to make room since its folder was listed. What a run of a store names is missing."""
    return isinstance(error, FileNotFoundError) and not path.endswith(PARQUET)


# --- several processes --------------------------------------------------------------------------------------------

_CHILD = """\
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from ray_tracing_hooks._insight.ingest.load import answer_requests
answer_requests(sys.stdin.buffer, sys.stdout.buffer)
"""
# Not multiprocessing: that imports the caller's main module again, or forks a process that may have threads.


def answer_requests(requests: BinaryIO, answers: BinaryIO) -> None:
    """In a child process: read the requested parts until there are no more requests."""
    with collector_paused():
        while True:
            try:
                part = pickle.load(requests)  # noqa: S301  from our own parent
            except EOFError:
                return
            pickle.dump(_read(part), answers, protocol=5)
            answers.flush()


def _by_processes(parts: Sequence[FilePart], processes: int) -> Iterator[Answer]:
    waiting: queue.SimpleQueue[tuple[int, FilePart]] = queue.SimpleQueue()
    for job in enumerate(parts):
        waiting.put(job)
    answered: list[queue.SimpleQueue[Answer | Exception]] = [queue.SimpleQueue() for _ in parts]
    threads = [threading.Thread(target=_serve, args=(waiting, answered), daemon=True) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for place in answered:
        answer = place.get()
        if isinstance(answer, Exception):
            raise answer
        yield answer
    for thread in threads:
        thread.join()


def _serve(
    waiting: queue.SimpleQueue[tuple[int, FilePart]], answered: Sequence[queue.SimpleQueue[Answer | Exception]]
) -> None:
    """Have a child process read parts until all are read. If it cannot start, or dies, they are read here.

    An error of this process, such as a lack of memory, is the answer for its part.
    """
    child = None
    try:
        child = subprocess.Popen(  # noqa: S603
            # Isolated mode: nothing is imported from the current folder.
            [sys.executable, "-I", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        _send(child, list(sys.path))
    except OSError:
        pass
    try:
        while True:
            try:
                place, part = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                answered[place].put(_read(part) if child is None else _asked(child, part))
            except Exception as error:  # noqa: BLE001  the main thread, which waits for an answer, raises it
                answered[place].put(error)
                return
    finally:
        if child is not None and child.stdin is not None and child.stdout is not None:
            child.stdin.close()
            child.stdout.close()
            child.wait()


def _asked(child: subprocess.Popen[bytes], part: FilePart) -> Answer:
    try:
        _send(child, part)
        assert child.stdout is not None
        answer: Answer = pickle.load(child.stdout)  # noqa: S301  from our own child
    except (OSError, EOFError, pickle.UnpicklingError):
        return _read(part)
    return answer


def _send(child: subprocess.Popen[bytes], what: object) -> None:
    if child.stdin is not None:
        pickle.dump(what, child.stdin)
        child.stdin.flush()
