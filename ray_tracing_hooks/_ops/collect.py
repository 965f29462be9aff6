"""Copies the files of all nodes to a folder, or to an object store through ``fsspec``, in bounded memory.

A node reads its files in chunks, which come through Ray's object store. A file that has the same size at the target
already is not copied again: names are unique, and files only grow.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from ray_tracing_hooks._insight.store.targets import Target
from ray_tracing_hooks._ops import probe, sources
from ray_tracing_hooks._ops.cluster import Node, Visit
from ray_tracing_hooks._safety.guard import TracingError, describe

CHUNK = 4 << 20
_AT_ONCE = 4
"""Nodes that files are fetched from at the same time."""

_OURS = re.compile(r".+-[0-9a-f]+-\d{4,}\.jsonl|task-states-.+\.ndjson")
"""Names that no two files have: those of this package's exporters have a random part."""

_NAME = re.compile(r"((logs|metrics)/)?[\w@+-][\w.@+-]*")


class SourceError(TracingError):
    """A node does not give what it was asked for."""


class Source(NamedTuple):
    """One machine with files.

    Attributes:
        name: What it is called in messages.
        call: Gives the result of a function there. Raises SourceError.
        session_dir: The folder of a Ray session on this machine; empty for a node, which knows its own.
    """

    name: str
    call: Callable[..., Any]
    session_dir: str = ""

    def place(self) -> dict[str, Any]:
        """Where its files are, for :func:`~ray_tracing_hooks._ops.sources.prepare`. Raises SourceError."""
        if self.session_dir:
            return {"session_dir": self.session_dir, "node_id": ""}
        found: dict[str, Any] = self.call(probe.place)
        return found


def here(session_dir: str) -> Source:
    """This machine, with the folder of a Ray session."""

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            raise SourceError(describe(error)) from error

    return Source(session_dir, call, session_dir)


def of_node(visit: Visit, node: Node, timeout: float) -> Source:
    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        answer = visit.answer(visit.ask(node, function, *arguments), timeout)
        if answer.failure is not None:
            raise SourceError(answer.text)
        return answer.value

    return Source(node.name, call)


class File(NamedTuple):
    """A file of a source, and the name that it gets."""

    source: Source
    path: str
    name: str
    size: int


@dataclass
class Collected:
    """How many files are complete at the target, their size, how much was fetched now, and what was not collected."""

    files: int = 0
    bytes: int = 0
    fetched_bytes: int = 0
    problems: list[str] = field(default_factory=list)


def collect(
    found: Sequence[Source],
    options: dict[str, Any],
    target: Target,
    advance: Callable[[str, int, int], None],
) -> Collected:
    """Collect the files of these sources at the target. What fails at one does not keep the others.

    ``options`` are those of :func:`~ray_tracing_hooks._ops.sources.prepare` that are the same everywhere. ``advance``
    is called with what is being done, and how many bytes of how many are done. Raises TargetError where nothing can be
    written.
    """
    result = Collected()
    transfer = _Transfer(target, result)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        try:
            advance("having spans written", 0, 1)
            # Nodes that share a folder name the same file. It may have grown since the first one has named it. Files of
            # other programs may have one name on each node.
            files: dict[str, File] = {}
            for listed in threads.map(partial(_listed, options, result), found):
                for file in listed:
                    name, number = file.name, 1
                    while name in files and not _OURS.fullmatch(os.path.basename(name)):
                        number += 1
                        stem, _, suffix = file.name.partition(".jsonl")
                        name = f"{stem}_{number}.jsonl{suffix}"
                    if name not in files or files[name].size < file.size:
                        files[name] = file._replace(name=name)
            transfer.begin(sum(file.size for file in files.values()), advance)
            by_source = [[file for file in files.values() if file.source is source] for source in found]
            list(threads.map(transfer.fetch, by_source))
        except BaseException:
            transfer.is_over = True
            raise
        finally:
            target.close()
    return result


def _listed(options: dict[str, Any], result: Collected, source: Source) -> list[File]:
    try:
        answer = source.call(sources.prepare, {**source.place(), **options})
    except SourceError as error:
        result.problems.append(f"{source.name}: {error}")
        return []
    result.problems += [f"{source.name}: {problem}" for problem in answer["problems"]]
    return [
        File(source, each["path"], each["name"], int(each["size"]))
        for each in answer["files"]
        # A node names no path outside of the target.
        if _NAME.fullmatch(each["name"])
    ]


class _Transfer:
    """Fetches files. Threads share it, each with the files of one source.

    Attributes:
        is_over: Set to end all threads soon.
    """

    def __init__(self, target: Target, result: Collected) -> None:
        self.is_over = False
        self._target = target
        self._result = result
        self._lock = threading.Lock()
        self._done = self._total = 0
        self._advance: Callable[[str, int, int], None] = lambda *_counts: None

    def begin(self, total: int, advance: Callable[[str, int, int], None]) -> None:
        """Fetch ``total`` bytes, and tell ``advance`` how far this is."""
        self._total, self._advance = total, advance
        self._count(0)

    def fetch(self, files: Sequence[File]) -> None:
        for file in files:
            try:
                if self._target.size(file.name) == file.size:
                    self._count(file.size)
                else:
                    with self._target.create(file.name) as out:
                        out.writelines(self._chunks(file))
            except SourceError as error:
                with self._lock:
                    self._result.problems.append(f"{file.source.name}: {file.path}: {error}")
                continue
            with self._lock:
                self._result.files += 1
                self._result.bytes += file.size

    def _chunks(self, file: File) -> Iterator[bytes]:
        for offset in range(0, file.size, CHUNK):
            if self.is_over:
                raise SourceError("interrupted")
            size = min(CHUNK, file.size - offset)
            data: bytes = file.source.call(sources.chunk, file.path, offset, size)
            if len(data) != size:
                raise SourceError("it has become shorter while it was read")
            yield data
            self._count(size, fetched=size)

    def _count(self, size: int, fetched: int = 0) -> None:
        """Count bytes that are at the target."""
        with self._lock:
            self._done += size
            self._result.fetched_bytes += fetched
            self._advance("fetching files", self._done, self._total)
