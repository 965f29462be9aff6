"""Brings spans from elsewhere to this machine, as files that the rest of this package reads.

A path stays as it is. Files of other formats, files in an object store, and traces of a back end become files in a
temporary folder, which is removed when this process ends.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._insight.ingest.backends import BACKENDS, AddressError, traces_of
from ray_tracing_hooks._insight.ingest.converted import converted, is_other
from ray_tracing_hooks._insight.ingest.files import is_span_file
from ray_tracing_hooks._insight.ingest.kept_runs import PREFIX, RUN_FILE, kept_run
from ray_tracing_hooks._safety.guard import TracingError
from ray_tracing_hooks._settings.values import MASK, without_credentials

_METRICS = "/metrics/"


class PlaceError(TracingError):
    """There are no spans to be had from a place."""


def _copy(place: str, name: str) -> str:
    """The path for a copy of a place."""
    path = os.path.join(tempfile.mkdtemp(dir=_folder()), name)
    _copies[path] = shown(place.partition("?")[0].rstrip("/") if is_elsewhere(place) else place)
    return path


@cache
def _folder() -> str:
    """The temporary folder of this process."""
    made = tempfile.mkdtemp(prefix="ray-tracing-hooks-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def is_elsewhere(place: str) -> bool:
    """Whether a place is no path on this machine."""
    return "://" in place


def shown(place: str) -> str:
    """A place as messages name it: a path as it is, an address without user, password and query."""
    return without_credentials(place) if is_elsewhere(place) else place


_copies: dict[str, str] = {}
"""By the path of a copy on this machine: the place that it was made of, as messages name it."""


def named(text: str) -> str:
    """A text that names files, with the places that these were fetched from instead of their copies."""
    for copy, place in _copies.items():
        text = text.replace(copy, place)
    return text


def local(place: str, warn: Callable[[str], None]) -> str:
    """The path of the spans of a place: a path, a URL for fsspec, or ``jaeger:``, ``tempo:`` or
    ``clickhouse:`` and an address.

    ``warn`` is called with what could not be had of it, as sentences. Of a store of runs elsewhere, only the
    descriptions are fetched until :func:`complete`. Raises AddressError, PlaceError or OSError.
    """
    kind, _, address = place.partition(":")
    if kind in BACKENDS and is_elsewhere(address):
        path = _copy(place, f"{kind}.jsonl")
        try:
            with open(path, "wb") as file:
                file.writelines(traces_of(kind, address, warn))
        except AddressError:
            raise
        except ValueError as error:
            raise PlaceError(str(error)) from None
        return path
    path = fetched(place, _has_spans_or_states) if is_elsewhere(place) else place
    if os.path.isfile(path) and is_other(path):
        into = _copy(place, f"{os.path.basename(path)}.jsonl")
        try:
            converted(path, into, lambda problem: warn(f"{shown(place)}: {problem}"))
        except (ValueError, ImportError) as error:
            raise PlaceError(f"{shown(place)}: {error}") from None
        return into
    return path


# --- Object stores --------------------------------------------------------------------------------------------------

_pending: dict[str, tuple[Any, str, list[str]]] = {}
"""By the folder of a run: its file system, its place there, and the files there that are not fetched yet."""


def complete(folder: str) -> None:
    """Fetch the rest of a run that is elsewhere: the files that its description names, since there may be others of
    another writer. Raises PlaceError.
    """
    system, place, names = _pending.pop(folder, (None, "", []))
    run = kept_run(folder) if names else None
    if run is not None:
        wanted = [*map(os.path.basename, run.files), *run.document["beside"]]
        _get(system, [(f"{place}/{name}", os.path.join(folder, *name.split("/"))) for name in wanted])


def unfetched(folder: str) -> tuple[Any, list[str]]:
    """The file system of a run that is elsewhere, and the names of its files of spans there until :func:`complete`."""
    system, place, _ = _pending.get(folder, (None, "", []))
    run = kept_run(folder) if place else None
    return system, [f"{place}/{os.path.basename(file)}" for file in run.files] if run is not None else []


def _listed(url: str) -> tuple[Any, str, list[str]]:
    """The file system of a URL for fsspec, its path there, and the names of all files below it, at least one. Raises
    PlaceError.
    """
    named = shown(url.partition("?")[0])
    try:
        from fsspec.core import (  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415  optional
            url_to_fs,
        )

        system, path = url_to_fs(url)
        path = str(path).rstrip("/")
        names = [str(name) for name in system.find(path)]
    except Exception as error:
        raise PlaceError(
            f"cannot read {named}: it needs fsspec and the package for its scheme, such as `pip install s3fs` "
            f"({_without_secrets(error, url)})"
        ) from error
    if not names:
        raise PlaceError(f"{named} does not exist, or has no files: expected a folder, a file or a store of spans")
    return system, path, names


def fetched(url: str, is_wanted: Callable[[str], bool]) -> str:
    """The path of a copy of a file or of the files of a folder that are wanted, by their names there. Of a run of a
    store, only its description is copied until :func:`complete`. Raises PlaceError.
    """
    system, path, names = _listed(url)
    into = _copy(url, os.path.basename(path) or "spans")
    if names == [path]:
        _get(system, [(path, into)])
        return into
    os.makedirs(into)
    places = {name: os.path.join(into, *name[len(path) :].strip("/").split("/")) for name in names}
    runs = {os.path.dirname(name) for name in names if os.path.basename(name) == RUN_FILE}
    now = []
    for name, to in places.items():
        run = next(
            (each for each in (os.path.dirname(name), os.path.dirname(os.path.dirname(name))) if each in runs), ""
        )
        if os.path.basename(name) == RUN_FILE:
            now.append((name, to))
        elif run and os.path.basename(run).startswith(PREFIX):
            pending = _pending.setdefault(os.path.dirname(places[f"{run}/{RUN_FILE}"]), (system, run, []))
            pending[2].append(name[len(run) + 1 :])
        elif is_wanted(name):
            now.append((name, to))
    _get(system, now)
    return into


def _has_spans_or_states(name: str) -> bool:
    return is_span_file(name) or task_states.is_file_name(os.path.basename(name)) or _METRICS in name


def _get(system: Any, files: list[tuple[str, str]]) -> None:
    for name, to in files:
        try:
            os.makedirs(os.path.dirname(to), exist_ok=True)
            system.get_file(name, to)
        except FileNotFoundError as error:
            gone = f"{shown(name)} is gone: it was removed or written again meanwhile. Repeat the command"
            raise PlaceError(gone) from error
        except Exception as error:
            raise PlaceError(f"cannot read {shown(name)}: {_without_secrets(error, name)}") from error


def _without_secrets(error: Exception, url: str) -> str:
    """The text of an error, which may quote the URL, or the URL without its user."""
    text, query = str(error).replace(url, shown(url)), url.partition("?")[2]
    return text.replace(query, MASK) if query else text
