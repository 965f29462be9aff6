"""Whether folders for spans take them, and have room."""

from __future__ import annotations

from collections.abc import Iterator

from ray_tracing_hooks._insight.analysis.wording import size
from ray_tracing_hooks._ops.disk import LOCAL, SPOOL
from ray_tracing_hooks._ops.facts import Facts, Folder
from ray_tracing_hooks._ops.finding import GOOD, PROBLEM, WARNING, Finding

_LITTLE, _FEW = 64 << 20, 1 << 30
"""Free bytes below which a disk is nearly full, and below which it may soon be."""

_WHAT = {SPOOL: "the spool folder", LOCAL: "the folder of local files"}
_VARIABLES = {SPOOL: "RAY_TRACING_SPOOL_DIR", LOCAL: "RAY_TRACING_LOCAL_DIR"}


def check(facts: Facts) -> Iterator[Finding]:
    """Each folder of each place."""
    good = 0
    least: int | None = None
    for place in facts.places:
        for folder in place.examined.folders if place.examined is not None else ():
            finding = _of_folder(folder, (place.name,))
            if finding is not None:
                yield finding
            else:
                good += 1
                least = folder.free if least is None or (folder.free or 0) < least else least
    if good and least is not None:
        yield Finding("disk", GOOD, f"folders for spans are writable, with {size(least)} free or more")


def _of_folder(folder: Folder, where: tuple[str, ...]) -> Finding | None:
    what = _WHAT.get(folder.what, folder.what)
    variable = _VARIABLES.get(folder.what, "the folder")
    room = f"{folder.path}: {size(folder.free)} free" if folder.free is not None else folder.path
    if folder.is_full:
        return Finding(
            "disk-full",
            PROBLEM,
            f"the disk of {what} is full",
            where,
            f"make room, or set {variable} to another disk",
            (folder.path,),
        )
    if folder.error is not None:
        return Finding(
            "folder-unusable",
            PROBLEM,
            f"{what} cannot be used: {folder.error}",
            where,
            f"set {variable} to a folder of the user that runs Ray, in the environment of `ray start` and of drivers",
            (folder.path,),
        )
    if folder.free is not None and folder.free < _LITTLE:
        return Finding(
            "disk-nearly-full",
            PROBLEM,
            f"the disk of {what} is nearly full",
            where,
            f"make room, or set {variable} to another disk",
            (room,),
        )
    if folder.free is not None and folder.free < max(_FEW, folder.limit):
        is_less = "less room than RAY_TRACING_SPOOL_MAX_BYTES" if folder.limit > folder.free else "little room"
        return Finding(
            "disk-small",
            WARNING,
            f"the disk of {what} has {is_less}",
            where,
            f"lower RAY_TRACING_{'SPOOL' if folder.what == SPOOL else 'LOCAL'}_MAX_BYTES, make room, or set {variable}",
            (room,),
        )
    return None
