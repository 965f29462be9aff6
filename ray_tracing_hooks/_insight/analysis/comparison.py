"""Compares runs with earlier ones: where their time went, their findings, and the figures of each function and span."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import KINDS
from ray_tracing_hooks._insight.analysis.measured import AnalyzedRun, MeasuredFinding, MeasuredRun, measured
from ray_tracing_hooks._insight.analysis.subjects import SubjectChange, subjects
from ray_tracing_hooks._insight.analysis.wording import listed
from ray_tracing_hooks._insight.model.calls import EVERYWHERE, NOWHERE, PARTLY
from ray_tracing_hooks._insight.model.span import HIDDEN


@dataclass(frozen=True)
class FindingChange:
    """A finding of either side. Findings of the same kind and subject are one."""

    kind: str
    subject: str
    """The function, class of actors, operator, deployment or accelerator it is about; empty if it is of the run."""
    now: MeasuredFinding | None
    before: MeasuredFinding | None
    runs: int
    """How many of the runs have it."""
    runs_before: int
    cost: int
    """The most that a run could save, on average over those that have it, in nanoseconds."""
    cost_before: int
    came: bool
    """Whether each of the runs has it, and no earlier one."""
    went: bool


class KindChange(NamedTuple):
    """A kind of time of the split of the runs, on average, in nanoseconds."""

    kind: str
    now: int
    before: int


@dataclass(frozen=True)
class Comparison:
    """Runs compared with earlier ones."""

    now: Sequence[MeasuredRun]
    before: Sequence[MeasuredRun]
    differences: list[str]
    """How the runs differ apart from the program, so that their times cannot be compared in full."""
    split: list[KindChange]
    """Kinds of time, the largest first; empty if a run has only requests to Ray Serve, and so no split."""
    findings: list[FindingChange]
    """The most costly first."""
    subjects: list[SubjectChange]
    """Everything that either side called, by the largest cost or saving."""

    @property
    def is_of_store(self) -> bool:
        """Whether the findings and the split of some run are from when it was stored."""
        return not all(isinstance(each, AnalyzedRun) for each in (*self.now, *self.before))

    @property
    def is_of_pair(self) -> bool:
        """Whether there is one run on each side, so that nobody knows how much runs differ."""
        return len(self.now) == len(self.before) == 1


def compare(runs_now: Sequence[Analysis | MeasuredRun], runs_before: Sequence[Analysis | MeasuredRun]) -> Comparison:
    """Runs compared with earlier ones.

    Raises ImportError without SciPy if there are several runs.
    """
    now, before = list(map(measured, runs_now)), list(map(measured, runs_before))
    return Comparison(
        now=now,
        before=before,
        differences=list(_differences(now, before)),
        split=_split(now, before),
        findings=_findings(now, before),
        subjects=subjects(now, before),
    )


# --- the runs ---------------------------------------------------------------------------------------------------------

_WAITS = {EVERYWHERE: "recorded", PARTLY: "recorded in some processes", NOWHERE: "not recorded"}
_SAMPLED = {False: "all traces", True: "some traces or calls"}


def _differences(now: Sequence[MeasuredRun], before: Sequence[MeasuredRun]) -> Iterator[str]:
    for when, runs in (("", now), (" before", before)):
        for text, many in (
            ("not ended", sum(each.state == "running" for each in runs)),
            ("no span of the driver, and may have lasted longer", sum(each.is_cut for each in runs)),
            ("lost spans", sum(each.is_partial for each in runs)),
            ("spans without the parent they name", sum(each.lost_parents > 0 for each in runs)),
        ):
            if many:
                some = f"the run{when} has" if len(runs) == 1 else f"{many} of the {len(runs)} runs{when} have"
                yield f"{some} {text}"
    for text, found_in in (
        ("waits were {} before and are {} now", [[_WAITS[run.waits] for run in runs] for runs in (before, now)]),
        (
            "spans were of {} before and are of {} now",
            [[_SAMPLED[run.is_sampled] for run in runs] for runs in (before, now)],
        ),
    ):
        sides = [sorted(set(each)) for each in found_in]
        if sides[0] != sides[1]:
            yield text.format(*map(listed, sides))
    for key, one, several in (
        (names.RESOURCE_RAY_VERSION, "Ray {}", "Ray {}"),
        ("process.runtime.version", "Python {}", "Python {}"),
        (names.RESOURCE_PROCESSORS, "nodes with {} processor", "nodes with {} processors"),
    ):
        values, values_before = _values(now, key), _values(before, key)
        if values and values_before and values != values_before:
            said = [(one if each == ["1"] else several).format(listed(each)) for each in (values_before, values)]
            yield f"{said[0]} before and {said[1]} now"
    hosts, hosts_before = _values(now, "host.name"), _values(before, "host.name")
    if hosts and hosts_before and hosts != hosts_before:
        yield f"other machines ({len(hosts_before):,} before and {len(hosts):,} now)"


def _values(runs: Sequence[MeasuredRun], key: str) -> list[str]:
    """The values that the processes of some runs have of an attribute; none if some are hidden."""
    found = {str(each) for run in runs for resource in run.resources.values() if (each := resource.get(key))}
    return sorted(found) if HIDDEN not in found else []


def _split(now: Sequence[MeasuredRun], before: Sequence[MeasuredRun]) -> list[KindChange]:
    sides = [[run.split for run in runs] for runs in (now, before)]
    if any(each is None for side in sides for each in side):
        return []
    found = [
        KindChange(kind, *(_mean([each.get(kind, 0) for each in side if each]) for side in sides)) for kind in KINDS
    ]
    return sorted(found, key=lambda each: -max(each.now, each.before))


def _mean(values: Sequence[int]) -> int:
    return round(sum(values) / len(values)) if values else 0


def walls(runs: Sequence[MeasuredRun]) -> list[int]:
    """The durations of some runs."""
    return [each.wall for each in runs]


# --- findings ---------------------------------------------------------------------------------------------------------

_Found = defaultdict[tuple[str, str, int], list[MeasuredFinding]]


def _findings(now: Sequence[MeasuredRun], before: Sequence[MeasuredRun]) -> list[FindingChange]:
    here, there = _by_subject(now), _by_subject(before)
    found = []
    for kind, subject, place in dict.fromkeys([*here, *there]):
        new, old = here.get((kind, subject, place), []), there.get((kind, subject, place), [])
        found.append(
            FindingChange(
                kind=kind,
                subject=subject,
                now=new[0] if new else None,
                before=old[0] if old else None,
                runs=len(new),
                runs_before=len(old),
                cost=_mean([each.cost for each in new]),
                cost_before=_mean([each.cost for each in old]),
                came=len(new) == len(now) and not old,
                went=len(old) == len(before) and not new,
            )
        )
    return sorted(found, key=lambda each: -max(each.cost, each.cost_before))


def _by_subject(runs: Sequence[MeasuredRun]) -> _Found:
    """By kind, subject and number of those in a run: the finding of each run that has it."""
    found: _Found = defaultdict(list)
    for run in runs:
        numbers: Counter[tuple[str, str]] = Counter()
        for finding in run.findings:
            kind, subject = finding.kind, finding.subject
            found[kind, subject, numbers[kind, subject]].append(finding)
            numbers[kind, subject] += 1
    return found
