"""What has been delivered and lost so far, what waits, whether shippers run, and whether folders have room."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ray_tracing_hooks._insight.analysis.wording import count, duration, size
from ray_tracing_hooks._ops.diagnosis import GOOD, PROBLEM, WARNING, Diagnosis
from ray_tracing_hooks._ops.facts import Facts, Folder, Host, Spool
from ray_tracing_hooks._ops.spools import LOCAL, SPOOL
from ray_tracing_hooks._ship.figures import DestinationFigures

_LONG = 60.0
"""The age in seconds from which waiting spans are a warning."""

_FULL = 0.8


def check(facts: Facts) -> Iterator[Diagnosis]:
    """Each spool of each host. Spools of nodes on this machine are not looked at a second time."""
    seen: set[tuple[str, str]] = set()
    shippers = delivered = waiting = 0
    for host in facts.hosts:
        for spool in host.examined.spools if host.examined is not None else ():
            if host.node is None and any(path == spool.path for _, path in seen):
                continue
            seen.add((host.name, spool.path))
            yield from _of_spool(host, spool)
            shippers += spool.runs
            delivered += spool.figures.delivered_earlier + sum(each.delivered for each in spool.figures.destinations)
            waiting += sum(each.waiting for each in spool.figures.destinations)
    if shippers:
        many = f"{count(shippers, 'shipper')} run{'s' * (shippers == 1)}"
        yield Diagnosis("shippers", GOOD, f"{many}: {count(delivered, 'span')} delivered so far, {waiting:,} waiting")


def _of_spool(host: Host, spool: Spool) -> Iterator[Diagnosis]:
    where, figures = (host.name,), spool.figures
    waiting = sum(each.waiting for each in figures.destinations)
    if spool.error is not None:
        yield Diagnosis(
            "spool-unreadable",
            PROBLEM,
            f"a spool cannot be read: {spool.error}",
            where,
            "does it belong to another user? Run this as the user that runs Ray",
            (spool.path,),
        )
    elif not spool.runs and waiting:
        yield Diagnosis(
            "shipper-gone",
            PROBLEM,
            "spans wait, and no shipper delivers them",
            where,
            "a running process with these settings starts a shipper soon; if there is none, deliver them with "
            "`ray-tracing-hooks replay FOLDER` on that node",
            tuple(f"{spool.path}: {_waits(each)}" for each in figures.destinations if each.waiting),
        )
    elif spool.is_stuck:
        yield Diagnosis(
            "shipper-stuck",
            PROBLEM,
            "a shipper hangs: it delivers nothing",
            where,
            "see its process, and ray_tracing_hooks-*.log in the logs folder of the Ray session; if you kill it, "
            "another one takes over",
            (f"process {figures.pid}, {spool.path}",),
        )
    for each in figures.destinations:
        yield from _of_destination(host, spool, each)
    for text in figures.problems if spool.runs else ():
        if text not in {each.error for each in figures.destinations}:
            yield Diagnosis(
                "shipper-reports",
                WARNING,
                f"a shipper reports: {text}",
                where,
                "fix the reported problem; see ray_tracing_hooks-*.log in the logs folder of the Ray session",
            )
    if figures.unwritten:
        yield Diagnosis(
            "spans-unwritten",
            PROBLEM,
            "spans are lost: they could not be written to the spool, whose disk is full or fails",
            where,
            "make room, or set RAY_TRACING_SPOOL_DIR to another disk",
            (f"{spool.path}: {count(figures.unwritten, 'span')}",),
        )
    if figures.limit_bytes and figures.bytes > _FULL * figures.limit_bytes:
        yield Diagnosis(
            "spool-full",
            WARNING,
            "a spool is nearly full; at its limit, the oldest spans are dropped",
            where,
            "repair delivery, or raise RAY_TRACING_SPOOL_MAX_BYTES",
            (f"{spool.path}: {size(figures.bytes)} of {size(figures.limit_bytes)}",),
        )


def _of_destination(host: Host, spool: Spool, each: DestinationFigures) -> Iterator[Diagnosis]:
    where, to = (host.name,), each.address or each.exporter
    trials = host.examined.trials if host.examined is not None else ()
    failed_now = any(trial.text == to and trial.error is not None for trial in trials)
    if each.refused:
        yield Diagnosis(
            "spans-refused",
            PROBLEM,
            f"{to} has refused spans, which are lost",
            where,
            "see the reason in the delivery log, ray_tracing_hooks-*.log in the logs folder of the Ray session",
            (f"{count(each.refused, 'span')} since the shipper began",),
        )
    if each.dropped:
        yield Diagnosis(
            "spans-dropped",
            PROBLEM,
            f"spans for {to} were dropped, because the spool reached its limit",
            where,
            "repair delivery, or raise RAY_TRACING_SPOOL_MAX_BYTES",
            (f"{count(each.dropped, 'span')} since the shipper began",),
        )
    if not spool.runs or not each.waiting:
        return
    if each.is_failing and not failed_now:
        yield Diagnosis(
            "delivery-fails",
            PROBLEM,
            f"spans wait for {to}: {each.error}",
            where,
            "they are kept until the spool is full" + _remedy(spool, each),
            (_waits(each),),
        )
    elif not each.is_failing and each.age(time.time_ns()) > _LONG:
        yield Diagnosis(
            "delivery-slow",
            WARNING,
            f"spans have waited long for {to}",
            where,
            "is the destination slow, or the node overloaded? The shipper runs at low priority",
            (_waits(each),),
        )


def _remedy(spool: Spool, each: DestinationFigures) -> str:
    if each.exporter in spool.reached:
        return (
            "; see the log of the collector. If the settings are wrong, correct them with `ray-tracing-hooks "
            "configure`: these spans are then delivered too"
        )
    if each.exporter == "local":
        return ", and written once the folder can be used"
    return (
        "; see the log of the collector. Their processes have ended, so `ray-tracing-hooks configure` cannot change "
        "their destination: if it is wrong, send them with `ray-tracing-hooks replay` once Ray has ended"
    )


def _waits(each: DestinationFigures) -> str:
    about = "about " if each.is_estimate else ""
    since = f", the oldest for {duration(each.age(time.time_ns()) * 1e9)}" if each.oldest_ns else ""
    return f"{about}{count(each.waiting, 'span')} for {each.address or each.exporter}{since}"


_LITTLE, _FEW = 64 << 20, 1 << 30
"""Free bytes below which a disk is nearly full, and below which it may soon be."""

_WHAT = {SPOOL: "the spool folder", LOCAL: "the folder of local files"}
_VARIABLES = {SPOOL: "RAY_TRACING_SPOOL_DIR", LOCAL: "RAY_TRACING_LOCAL_DIR"}


def check_folders(facts: Facts) -> Iterator[Diagnosis]:
    """Each folder of each host."""
    good = 0
    least: int | None = None
    for host in facts.hosts:
        for folder in host.examined.folders if host.examined is not None else ():
            finding = _of_folder(folder, (host.name,))
            if finding is not None:
                yield finding
            else:
                good += 1
                least = folder.free if least is None or (folder.free or 0) < least else least
    if good and least is not None:
        yield Diagnosis("disk", GOOD, f"folders for spans are writable, with {size(least)} free or more")


def _of_folder(folder: Folder, where: tuple[str, ...]) -> Diagnosis | None:
    what = _WHAT.get(folder.what, folder.what)
    variable = _VARIABLES.get(folder.what, "the folder")
    room = f"{folder.path}: {size(folder.free)} free" if folder.free is not None else folder.path
    if folder.is_full:
        return Diagnosis(
            "disk-full",
            PROBLEM,
            f"the disk of {what} is full",
            where,
            f"make room, or set {variable} to another disk",
            (folder.path,),
        )
    if folder.error is not None:
        return Diagnosis(
            "folder-unusable",
            PROBLEM,
            f"{what} cannot be used: {folder.error}",
            where,
            f"set {variable} to a folder of the user that runs Ray, in the environment of `ray start` and of drivers",
            (folder.path,),
        )
    if folder.free is not None and folder.free < _LITTLE:
        return Diagnosis(
            "disk-nearly-full",
            PROBLEM,
            f"the disk of {what} is nearly full",
            where,
            f"make room, or set {variable} to another disk",
            (room,),
        )
    if folder.free is not None and folder.free < max(_FEW, folder.limit):
        is_less = "less room than RAY_TRACING_SPOOL_MAX_BYTES" if folder.limit > folder.free else "little room"
        return Diagnosis(
            "disk-small",
            WARNING,
            f"the disk of {what} has {is_less}",
            where,
            f"lower RAY_TRACING_{'SPOOL' if folder.what == SPOOL else 'LOCAL'}_MAX_BYTES, make room, or set {variable}",
            (room,),
        )
    return None
