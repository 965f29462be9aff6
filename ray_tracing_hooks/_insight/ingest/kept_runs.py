"""Finds the runs of a store: folders ``run=<id>`` with the Parquet files of spans that their ``run.json`` names.

A run without that file is not complete yet, and does not count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct, ValidationError, convert

from ray_tracing_hooks._insight.model.quality import Quality

FORMAT, VERSION = "ray_tracing_hooks.run", 1
"""Of ``run.json`` and of the columns. Members and columns may be added within a version, and none changes."""

RUN_FILE = "run.json"
PREFIX = "run="

COUNTS = ("files", "lines", "bad_lines", "bad_spans", "incomplete_files", "duplicates", "dropped", "truncated")
"""What is known of the spans only where they were read first."""

_MOST = 64 << 20
"""The bytes of a description that are read. It has the arguments of the program, of which Linux takes 6 MiB: up to six
times as many in JSON."""


_Count = Annotated[int, Meta(ge=0, le=1 << 62)]


class _File(Struct):
    name: Annotated[str, Meta(pattern=r"^[\w-]+\.parquet\Z")]  # no path outside of the folder
    rows: _Count


_Beside = Annotated[str, Meta(pattern=r"^(metrics/)?[\w-][\w.-]*\Z")]


class _Finding(Struct):
    title: str
    share: float
    cost_ns: _Count
    kind: str
    subject: str
    text: str


class _Quality(Struct):
    files: _Count
    lines: _Count
    bad_lines: _Count
    bad_spans: _Count
    incomplete_files: _Count
    duplicates: _Count
    dropped: _Count
    problems: list[tuple[str, _Count, str]]
    lost_parents: _Count
    truncated: _Count = 0


class _Counts(Struct):
    calls: _Count
    failed: _Count


class _Document(Struct):
    """What readers need of a description; it has more."""

    id: str
    program: dict[str, str | list[str] | None]
    cluster: dict[str, str | int | None]
    start_unix_nano: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    wall_ns: _Count
    state: str
    counts: _Counts
    findings: list[_Finding]
    read_unix_nano: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    quality: _Quality
    files: Annotated[list[_File], Meta(min_length=1)]
    waits: Literal["everywhere", "partly", "nowhere"]
    is_sampled: bool
    time_split: dict[str, _Count] | None
    beside: list[_Beside]
    hidden: list[str]


class KeptRun(NamedTuple):
    """A run of a store."""

    folder: str
    document: dict[str, Any]
    """The content of ``run.json``."""

    @property
    def id(self) -> str:
        return str(self.document["id"])

    @property
    def start_ns(self) -> int:
        return int(self.document["start_unix_nano"])

    @property
    def spans(self) -> int:
        """The number of its spans."""
        return sum(each["rows"] for each in self.document["files"])

    @property
    def is_whole(self) -> bool:
        """Whether it is one run, whatever its spans still say of that; else traces of no job."""
        return bool(self.document["cluster"].get("job"))

    @property
    def hidden(self) -> list[str]:
        """The keys of attributes that the analysis reads and that were hidden before it was stored."""
        return list(self.document["hidden"])

    @property
    def files(self) -> list[str]:
        """The paths of its files of spans."""
        return [os.path.join(self.folder, each["name"]) for each in self.document["files"]]


def is_run(folder: str) -> bool:
    """Whether this is, by its name, the folder of one run."""
    return os.path.basename(os.path.abspath(folder)).startswith(PREFIX)


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def kept_run(folder: str) -> KeptRun | None:
    """The run in a folder; None if there is none. Raises OSError, or ValueError if this package cannot read it."""
    path = os.path.join(folder, RUN_FILE)
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(_MOST), parse_constant=_no_json)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not JSON: the run in this folder cannot be read") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path} does not describe a run: its format is not {FORMAT}")
    if found.get("version") != VERSION:
        raise ValueError(
            f"{path} has version {found.get('version')!r}, and this package reads version {VERSION}: use the version "
            "of ray-tracing-hooks that wrote it, or a newer one"
        )
    try:
        convert(found, _Document)
    except (ValidationError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    return KeptRun(folder, found)


def kept_runs(paths: Iterable[str]) -> tuple[list[KeptRun], list[str]]:
    """The runs of these stores, and of these folders of runs, the newest first; and why others cannot be read."""
    found, problems = [], []
    for path in paths:
        folders = [path] if is_run(path) else []
        if not folders:
            with suppress(OSError):
                folders = [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.startswith(PREFIX)]
        for folder in folders:
            try:
                run = kept_run(folder)
            except OSError as error:
                problems.append(f"{folder}: {error.strerror}")
            except ValueError as error:
                problems.append(str(error))
            else:
                found += [run] if run is not None else []
    return sorted(found, key=lambda run: (-run.start_ns, run.id)), problems


class KeptQuality:
    """What was wrong with the data of runs when they were stored, which their files do not show."""

    def __init__(self, paths: Sequence[str]) -> None:
        """``paths`` are files of spans."""
        self._documents: list[dict[str, Any]] = []
        self._files = 0
        for folder in dict.fromkeys(os.path.dirname(path) for path in paths):
            with suppress(OSError, ValueError):
                if is_run(folder) and (run := kept_run(folder)) is not None:
                    self._documents.append(run.document)
                    self._files += sum(path in run.files for path in paths)

    @property
    def now_ns(self) -> int | None:
        """When the spans were read, if that is known: running ones had lasted until then."""
        return max((each["read_unix_nano"] for each in self._documents), default=0) or None

    def add_to(self, quality: Quality) -> None:
        """Count it in ``quality``, once for all runs that were stored together."""
        if not self._documents:
            return
        quality.files -= self._files
        distinct = {json.dumps(each["quality"], sort_keys=True): each["quality"] for each in self._documents}
        for found in distinct.values():
            for name in COUNTS:
                setattr(quality, name, getattr(quality, name) + found.get(name, 0))
            for problem in found["problems"]:
                quality.note(*problem)
