"""A comparison as text, for people: on a screen, or in Markdown for a pull request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from ray_tracing_hooks._cli.screen import Row, TextTable
from ray_tracing_hooks._insight.analysis.changes import LEVEL, FigureChange
from ray_tracing_hooks._insight.analysis.comparison import (
    CALLS,
    FAILED,
    SELF,
    SHARES,
    TIMES,
    Comparison,
    SubjectChange,
    walls,
)
from ray_tracing_hooks._insight.analysis.critical_path import SHORT_MEANINGS
from ray_tracing_hooks._insight.analysis.explained import Explanation
from ray_tracing_hooks._insight.analysis.measured import FUNCTION, MeasuredRun
from ray_tracing_hooks._insight.analysis.wording import count, duration, listed, percent, plain, shortened
from ray_tracing_hooks._safety.guard import safe

_SHOWN_KINDS = 4
_SHOWN_FINDINGS = 3
_SHOWN_CHANGES = 12
_SHOWN_ERRORS = 2
_SHOWN_NODE = 16
_SHOWN_NAMES = 3
_NAME_WIDTH = 40

_FEW_RUNS = 4
"""Of fewer runs in all, chance explains almost any change."""


def lines(found: Comparison) -> Iterator[str | Row]:
    """What differs from the earlier runs, on about a screen."""
    yield ""
    for number, part in enumerate(parts(found)):
        if isinstance(part, TextTable):
            yield from part.lines()
        else:
            yield f" {part}" if number else part


def markdown(found: Comparison) -> Iterator[str]:
    """The same in Markdown. Names from spans are shown as they are, and format nothing."""
    for number, part in enumerate(parts(found)):
        if isinstance(part, TextTable):
            yield _row([each.capitalize() for each in part.titles])
            yield _row(["---", *["--:"] * (len(part.titles) - 1)])
            yield from map(_row, part.rows)
        else:
            # A sign at the beginning of a line would make a list of it.
            yield f"**{_escaped(part)}**" if not number else re.sub(r"^(\d*)([-+=.)])", r"\1\\\2", _escaped(part))
        yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell if set(cell) <= set('-:') else _escaped(cell) for cell in cells)} |"


def _escaped(text: str) -> str:
    # A mention would notify somebody even behind a backslash.
    return re.sub(r"([\\`*_{}\[\]<>|#~&])", r"\\\1", safe(text)).replace("@", "&#64;")


def parts(found: Comparison) -> Iterator[str | TextTable]:
    """The sentences and tables of a comparison. The first sentence is its title."""
    yield f"{_runs(found.now)} against {_runs(found.before)}"
    if found.differences:
        yield f"These runs cannot be compared in full: {'; '.join(found.differences)}."
    yield _durations(found)
    yield from _split(found)
    yield from _findings(found)
    yield from _changes(found)
    if found.is_of_store:
        yield "The findings, and the split of the time, are from when the runs were stored."


def _runs(runs: Sequence[MeasuredRun]) -> str:
    name = listed([_name(each) for each in dict.fromkeys(each.name for each in runs)])
    start = datetime.fromtimestamp(max(each.start for each in runs) / 1e9).astimezone()
    when = f"{start:%Y-%m-%d %H:%M:%S}"
    return f"{name} of {when}" if len(runs) == 1 else f"{len(runs)} runs of {name} (newest: {when})"


def _durations(found: Comparison) -> str:
    before, now = ([min(walls(runs)), max(walls(runs))] for runs in (found.before, found.now))
    if found.is_of_pair:
        ratio = f" (x{now[0] / before[0]:.2f})" if before[0] else ""
        return (
            f"The run took {duration(before[0])} before and {duration(now[0])} now{ratio}. One run of each does not "
            "tell a change of the program from one of the machine's load: repeat both."
        )
    times = " and ".join(
        f"{' to '.join(dict.fromkeys(map(duration, side)))} {when}" for side, when in ((before, "before"), (now, "now"))
    )
    few = len(found.now) + len(found.before) < _FEW_RUNS
    return f"A run took {times}. " + (
        "With so few runs, chance explains almost any change: add runs."
        if few
        else "The list has changes that exceed the differences between runs. "
        f"At most {percent(LEVEL)} of them are by chance."
    )


def _split(found: Comparison) -> Iterator[TextTable]:
    rows = [
        (
            SHORT_MEANINGS[each.kind],
            duration(each.before),
            duration(each.now),
            _difference(each.now - each.before),
        )
        for each in found.split[:_SHOWN_KINDS]
        if each.now or each.before
    ]
    if rows:
        yield TextTable(("WHERE THE TIME WENT, WITH QUEUES", "BEFORE", "NOW", "DIFFERENCE"), rows)


def _findings(found: Comparison) -> Iterator[str | TextTable]:
    changed = [each for each in found.findings if each.came or each.went]
    kept = len(found.findings) - len(changed)
    on_both = "in both runs" if found.is_of_pair else "in some runs of either side or both"
    others = f"{kept:,} {on_both}" if kept else ""
    if not changed:
        yield f"Findings: {others or 'none in any run'}."
        return
    rows = [
        (
            f"{each.kind} {_name(each.subject)}".rstrip(),
            _cost(each.cost_before, is_there=each.went),
            _cost(each.cost, is_there=each.came),
            "came" if each.came else "gone",
        )
        for each in changed[:_SHOWN_FINDINGS]
    ]
    yield TextTable(("FINDINGS, WITH THE MOST THEY COST", "BEFORE", "NOW", "CHANGE"), rows)
    more = f"{count(len(changed) - len(rows), 'other')} came or went" if len(changed) > len(rows) else ""
    if more or others:
        yield f"and {listed([each for each in (more, others) if each])}"


def _changes(found: Comparison) -> Iterator[str | TextTable]:
    changed = sorted(
        ((subject, change) for subject in found.subjects for change in subject.counted),
        key=lambda each: (-abs(each[1].cost), SHARES.index(each[1].what) if each[1].what in SHARES else 0),
    )
    shown = changed[:_SHOWN_CHANGES]
    rows = [
        (
            _subject(subject),
            f"{change.what} on {shortened(change.where.split()[-1], _SHOWN_NODE)}" if change.where else change.what,
            _value(change, change.before),
            _value(change, change.now),
            _amount(change, change.amount),
            "" if change.low is None or change.high is None else _range(change, change.low, change.high),
            f"{subject.calls_before:,.0f} / {subject.calls:,.0f}",
        )
        for subject, change in shown
    ]
    if rows:
        yield TextTable(("CHANGED", "FIGURE", "BEFORE", "NOW", "CHANGE", "RANGE", "CALLS"), rows)
    for subject in dict.fromkeys(id(subject) for subject, _ in shown):
        (one,) = [each for each in found.subjects if id(each) == subject]
        yield from _reasons(one)
    others = list(_others(found, len(changed) - len(rows)))
    if others:
        yield f"{'; '.join(others)}."


def _reasons(subject: SubjectChange) -> Iterator[str]:
    """What explains the changes of a function."""
    if subject.errors:
        some = [f"{kind or 'no type'} x{many:,}" for kind, many in list(subject.errors.items())[:_SHOWN_ERRORS]]
        yield f"{_subject(subject)} failed with {listed(some)}"
    for what, each in subject.explained.items():
        yield f"{_subject(subject)}, {what}: {_explained(each, is_of_errors=what == FAILED)}"


def _explained(found: Explanation, *, is_of_errors: bool) -> str:
    where = f"{found.key} {shortened(found.value)}"
    if found.was is not None:
        return f"all calls have {where} now, most had {shortened(found.was)} before"
    assert found.elsewhere is not None
    slow = ""
    if found.share_of_slow is not None:
        of = "failed" if is_of_errors else "slow"
        slow = f"; {percent(found.share)} of its calls, {percent(found.share_of_slow)} of the {of} ones"
    amounts = [_amount(each, each.amount) for each in (found.change, found.elsewhere)]
    return f"{amounts[0]} with {where}, {amounts[1]} without{slow}"


def _others(found: Comparison, more: int) -> Iterator[str]:
    """Functions that the table leaves out, in groups."""
    if more:
        yield f"and {count(more, 'other figure')}"
    groups: Counter[str] = Counter()
    for each in found.subjects:
        if not (each.calls and each.calls_before):
            continue
        if not each.is_comparable:
            groups["self times not compared, since waits were not recorded in all runs alike"] += 1
        elif not each.counted:
            own = each.change(SELF)
            is_known = own is not None and (not found.is_of_pair or own.low is not None)
            groups["no clear change" if is_known else "too few calls to tell"] += 1
    for what, many in groups.most_common():
        yield f"{what}: {count(many, 'function or span', 'functions or spans')}"
    for when, only in (
        ("before", [each for each in found.subjects if each.is_gone]),
        ("now", [each for each in found.subjects if each.is_new]),
    ):
        if only:
            some = [_subject(each) for each in only[:_SHOWN_NAMES]]
            others = [count(len(only) - len(some), "other")] if len(only) > len(some) else []
            yield f"only {when}: {listed([*some, *others])}"


def _value(change: FigureChange, value: float) -> str:
    return duration(value) if change.what in TIMES else f"{value:,.0f}" if change.what == CALLS else percent(value)


def _amount(change: FigureChange, amount: float) -> str:
    if change.is_ratio:
        return f"x{amount:.2f}"
    return f"{amount:+,.0f}" if change.what == CALLS else f"{amount * 100:+.0f} %"


def _range(change: FigureChange, low: float, high: float) -> str:
    return f"{_amount(change, low)} to {_amount(change, high)}"


def _difference(nanoseconds: int) -> str:
    sign = "-" if nanoseconds < 0 else "+"
    return f"{sign}{duration(abs(nanoseconds))}" if nanoseconds else ""


def _cost(cost: int, *, is_there: bool) -> str:
    """The cost of a finding, which may have none."""
    return "none" if not is_there else duration(cost) if cost else "found"


def _subject(subject: SubjectChange) -> str:
    return _name(subject.name) if subject.kind == FUNCTION else f"{subject.kind} {_name(subject.name)}"


def _name(name: str) -> str:
    return shortened(plain(name), _NAME_WIDTH)
