"""Compares runs with earlier ones: where their time went, their findings, and the figures of each function and span."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import KINDS
from ray_tracing_hooks._insight.analysis.findings import Finding, find
from ray_tracing_hooks._insight.analysis.subjects import SubjectChange, subjects
from ray_tracing_hooks._insight.analysis.wording import listed
from ray_tracing_hooks._insight.model.calls import EVERYWHERE, NOWHERE, PARTLY
from ray_tracing_hooks._insight.model.grouped import distinct
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.table import RUNNING


@dataclass(frozen=True)
class FindingChange:
    """A finding of either side. Findings of the same kind and subject are one."""

    kind: str
    subject: str
    """The function, class of actors, operator, deployment or accelerator it is about; empty if it is of the run."""
    now: Finding | None
    before: Finding | None
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

    now: Sequence[Analysis]
    before: Sequence[Analysis]
    differences: list[str]
    """How the runs differ apart from the program, so that their times cannot be compared in full."""
    split: list[KindChange]
    """Kinds of time, the largest first; empty if a run has only requests to Ray Serve, and so no split."""
    findings: list[FindingChange]
    """The most costly first."""
    subjects: list[SubjectChange]
    """Everything that either side called, by the largest cost or saving."""

    @property
    def is_of_pair(self) -> bool:
        """Whether there is one run on each side, so that nobody knows how much runs differ."""
        return len(self.now) == len(self.before) == 1


def compare(
    now: Sequence[Analysis], before: Sequence[Analysis], findings: Sequence[Finding] | None = None
) -> Comparison:
    """Runs compared with earlier ones. ``findings`` are those of a single run ``now``, if they are known.

    Raises ImportError without SciPy if there are several runs.
    """
    found = [find(each) for each in now] if findings is None else [findings]
    return Comparison(
        now=now,
        before=before,
        differences=list(_differences(now, before)),
        split=_split(now, before),
        findings=_findings(now, before, found, [find(each) for each in before]),
        subjects=subjects(now, before),
    )


# --- the runs ---------------------------------------------------------------------------------------------------------

_WAITS = {EVERYWHERE: "recorded", PARTLY: "recorded in some processes", NOWHERE: "not recorded"}


def _differences(now: Sequence[Analysis], before: Sequence[Analysis]) -> Iterator[str]:
    for when, runs in (("", now), (" before", before)):
        for text, many in (
            ("not ended", sum(RUNNING in each.table.state for each in runs)),
            ("no span of the driver, and may have lasted longer", sum(each.path.is_cut for each in runs)),
            ("lost spans", sum(each.table.quality.is_partial for each in runs)),
            ("spans without the parent they name", sum(each.table.quality.lost_parents > 0 for each in runs)),
        ):
            if many:
                some = f"the run{when} has" if len(runs) == 1 else f"{many} of the {len(runs)} runs{when} have"
                yield f"{some} {text}"
    for text, value in (
        ("waits were {} before and are {} now", lambda run: _WAITS[run.calls.waiting]),
        ("spans were of {} before and are of {} now", _sampled),
    ):
        values, values_before = (sorted({value(run) for run in runs}) for runs in (now, before))
        if values != values_before:
            yield text.format(listed(values_before), listed(values))
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


def _sampled(analysis: Analysis) -> str:
    calls = analysis.calls
    return "some traces or calls" if calls.unsampled or calls.left_out else "all traces"


def _values(runs: Sequence[Analysis], key: str) -> list[str]:
    """The values that the processes of some runs have of an attribute."""
    found = (
        analysis.table.resources[each].get(key)
        for analysis in runs
        for each in distinct(as_numpy(analysis.table.resource)).tolist()
    )
    return sorted({str(each) for each in found if each})


def _split(now: Sequence[Analysis], before: Sequence[Analysis]) -> list[KindChange]:
    if any(each.ends_with_request for each in (*now, *before)):
        return []
    found = [
        KindChange(kind, *(_mean([each.split.kinds[kind] for each in runs]) for runs in (now, before)))
        for kind in KINDS
    ]
    return sorted(found, key=lambda each: -max(each.now, each.before))


def _mean(values: Sequence[int]) -> int:
    return round(sum(values) / len(values)) if values else 0


def walls(runs: Sequence[Analysis]) -> list[int]:
    """The durations of some runs."""
    return [each.path.wall for each in runs]


# --- findings ---------------------------------------------------------------------------------------------------------

_SUBJECTS = ("actor", "operator", "function", "deployment", "accelerator")
"""Figures that name what a finding is about. Names of datasets, runs of Ray Train and nodes may differ each time."""

_Found = defaultdict[tuple[str, str, int], list[tuple[Finding, int]]]


def _findings(
    now: Sequence[Analysis],
    before: Sequence[Analysis],
    findings: Sequence[Sequence[Finding]],
    findings_before: Sequence[Sequence[Finding]],
) -> list[FindingChange]:
    here, there = _by_subject(now, findings), _by_subject(before, findings_before)
    found = []
    for kind, subject, place in dict.fromkeys([*here, *there]):
        new, old = here.get((kind, subject, place), []), there.get((kind, subject, place), [])
        found.append(
            FindingChange(
                kind=kind,
                subject=subject,
                now=new[0][0] if new else None,
                before=old[0][0] if old else None,
                runs=len(new),
                runs_before=len(old),
                cost=_mean([cost for _, cost in new]),
                cost_before=_mean([cost for _, cost in old]),
                came=len(new) == len(now) and not old,
                went=len(old) == len(before) and not new,
            )
        )
    return sorted(found, key=lambda each: -max(each.cost, each.cost_before))


def _by_subject(runs: Sequence[Analysis], findings: Sequence[Sequence[Finding]]) -> _Found:
    """By kind, subject and number of those in a run: the finding of each run that has it, and its cost."""
    found: _Found = defaultdict(list)
    for analysis, of_run in zip(runs, findings, strict=True):
        numbers: Counter[tuple[str, str]] = Counter()
        for finding in of_run:
            kind, subject = finding.kind, _subject(analysis, finding)
            number = numbers[kind, subject]
            found[kind, subject, number].append((finding, round(finding.share * analysis.path.wall)))
            numbers[kind, subject] += 1
    return found


def _subject(analysis: Analysis, finding: Finding) -> str:
    calls, figures = analysis.calls, finding.figures
    for key in _SUBJECTS:
        if key in figures:
            # The id in the name of an actor differs each time.
            return str(figures[key]).partition("#")[0] if key == "actor" else str(figures[key])
    if finding.is_failure and finding.rows:
        row = finding.rows[0]
        return calls.function_of(row) if calls.call_of[row] >= 0 else analysis.table.name_of(row)
    return ""
