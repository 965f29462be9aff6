"""Finds the runs of a store: folders ``run=<id>`` with the Parquet files of spans that their ``run.json`` names.

A run without that file is not complete yet, and does not count.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ray_tracing_hooks._insight.model.quality import Problem, Quality

FORMAT, VERSION = "ray_tracing_hooks.run", 1
"""Of ``run.json`` and of the columns. Members and columns may be added within a version, and none changes."""

RUN_FILE = "run.json"
PREFIX = "run="

_COUNTS = ("files", "lines", "bad_lines", "bad_spans", "incomplete_files", "duplicates", "dropped")
"""What is known of the spans only where they were read first."""

_MOST = 1 << 20


class KeptRun(NamedTuple):
    """A run of a store."""

    folder: str
    document: dict[str, Any]
    """The content of ``run.json``."""

    @property
    def id(self) -> str:
        return str(self.document.get("id") or "")

    @property
    def start_ns(self) -> int:
        found = self.document.get("start_unix_nano")
        return found if isinstance(found, int) else 0

    @property
    def files(self) -> list[str]:
        """The paths of its files of spans."""
        named = [each.get("name") for each in self.document.get("files") or () if isinstance(each, dict)]
        # No path outside of the folder.
        return [os.path.join(self.folder, name) for name in named if isinstance(name, str) and _NAME.fullmatch(name)]


_NAME = re.compile(r"[\w-]+\.parquet")


def is_run(folder: str) -> bool:
    """Whether this is, by its name, the folder of one run."""
    return os.path.basename(os.path.abspath(folder)).startswith(PREFIX)


def kept_run(folder: str) -> KeptRun | None:
    """The run in a folder; None if there is none. Raises OSError, or ValueError if this package cannot read it."""
    path = os.path.join(folder, RUN_FILE)
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(_MOST))
    except FileNotFoundError:
        return None
    except ValueError:
        raise ValueError(f"{path} is not JSON: the run in this folder cannot be read") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path} does not describe a run: its format is not {FORMAT}")
    if found.get("version") != VERSION:
        raise ValueError(
            f"{path} has version {found.get('version')!r}, and this package reads version {VERSION}: use the version "
            "of ray-tracing-hooks that wrote it, or a newer one"
        )
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
        return max((int(each.get("read_unix_nano") or 0) for each in self._documents), default=0) or None

    def add_to(self, quality: Quality) -> None:
        """Count it in ``quality``, once for all runs that were stored together."""
        if not self._documents:
            return
        quality.files -= self._files
        distinct = {json.dumps(each.get("quality"), sort_keys=True): each.get("quality") for each in self._documents}
        for found in distinct.values():
            if not isinstance(found, dict):
                continue
            for name in _COUNTS:
                value = found.get(name)
                setattr(quality, name, getattr(quality, name) + (value if isinstance(value, int) else 0))
            for each in found.get("problems") or ():
                if isinstance(each, list) and len(each) == len(Problem._fields):
                    quality.note(str(each[0]), int(each[1] or 0), str(each[2]))
