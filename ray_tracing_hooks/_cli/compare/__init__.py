"""``ray-tracing-hooks compare``: compares runs with earlier ones, and ends with 1 if they got worse."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from ray_tracing_hooks._cli import output as outputs
from ray_tracing_hooks._cli.compare import document, text
from ray_tracing_hooks._cli.engines import MEMORY, engine_errors, engine_option, runs_of
from ray_tracing_hooks._cli.options import examples, json_option, redaction_options
from ray_tracing_hooks._cli.screen import print_lines
from ray_tracing_hooks._cli.view import write
from ray_tracing_hooks._insight.analysis.comparison import SELF, Comparison
from ray_tracing_hooks._insight.analysis.comparison import compare as compared
from ray_tracing_hooks._insight.analysis.measured import AnalyzedRun, MeasuredRun
from ray_tracing_hooks._insight.views import page
from ray_tracing_hooks._insight.views.page.compared import compared as page_of
from ray_tracing_hooks._safety.guard import safe

_TO = "--to"
SLOWER, ERRORS, FINDINGS = "slower", "errors", "findings"


class _Sides(click.Command):
    """``--to`` takes all arguments up to the next option, as the argument before it does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        found: list[str] = []
        is_after = False
        for number, each in enumerate(args):
            if each == _TO:
                is_after = True
                if number + 1 == len(args) or args[number + 1].startswith("-"):
                    raise click.BadParameter("name the runs to compare", ctx=ctx, param_hint=_TO)
            else:
                is_after = is_after and not each.startswith("-")
                found += [_TO, each] if is_after else [each]
        return super().parse_args(ctx, found)


class Bound(NamedTuple):
    """What ``--fail-on`` fails on: a figure, and by how much it has to be larger."""

    what: str
    least: float = 0.0

    def fails(self, found: Comparison) -> bool:
        if self.what == SLOWER:
            changes = (each.change(SELF) for each in found.subjects)
            return any(each.is_more and each.amount > 1 + self.least for each in changes if each is not None)
        if self.what == ERRORS:
            return any(each.fails_more for each in found.subjects)
        return any(each.came for each in found.findings)


class _Bound(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic since click 8.4
    """``slower``, ``slower=10%``, ``errors`` or ``findings``; anything else is wrong usage."""

    name = "bound"
    _FORM = re.compile(rf"({SLOWER})=(\d{{1,6}}(?:\.\d{{1,6}})?)%")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Bound:
        """The bound that is given. Raises click.BadParameter."""
        if value in (SLOWER, ERRORS, FINDINGS):
            return Bound(value)
        match = self._FORM.fullmatch(str(value))
        if match is None:
            self.fail(f"{safe(str(value))!r:.99}: expected slower, slower=10%, errors or findings", param, ctx)
        return Bound(match[1], float(match[2]) / 100)


@click.command(
    cls=_Sides,
    epilog=examples(
        "ray-tracing-hooks compare spans/before --to spans/after",
        "ray-tracing-hooks compare store@latest~1 --to store",
        "ray-tracing-hooks compare base/1 base/2 base/3 --to new/1 new/2 new/3",
        "ray-tracing-hooks compare --all base --to new --markdown --fail-on slower=10%",
    ),
)
@click.argument("base", metavar="BASE...", nargs=-1, required=True, type=click.Path(readable=False))
@click.option(_TO, "new", metavar="NEW...", multiple=True, required=True, help="The runs to compare with BASE.")
@click.option("--all", "everything", is_flag=True, help="All runs of each folder or file instead of the newest.")
@click.option(
    "--fail-on",
    "bounds",
    metavar="BOUND",
    type=_Bound(),
    multiple=True,
    help="Exit with code 1 if a self time became longer (slower, or slower=10% for more than that), more calls fail "
    "(errors), or a finding came (findings). You can give several.",
)
@click.option("--markdown", "in_markdown", is_flag=True, help="Print Markdown instead of text, for a pull request.")
@click.option(
    "--page", "page_file", metavar="FILE", help="Also write a report that compares both sides, one HTML file."
)
@click.option("--force", is_flag=True, help="Overwrite a file that is not a report with --page.")
@redaction_options
@engine_option
@json_option
def compare(
    base: tuple[str, ...],
    new: tuple[str, ...],
    everything: bool,
    bounds: tuple[Bound, ...],
    in_markdown: bool,
    page_file: str | None,
    force: bool,
    no_attributes: bool,
    redact: tuple[str, ...],
    engine: str | None,
    in_json: bool,
) -> None:
    """Compare new runs of a program with earlier ones: what became slower, fails more, is new or gone, and why.

    BASE and NEW are folders, files or stores of spans, each with its newest run, or the one that PATH@RUN names. With
    several runs, a change counts if it is more than runs differ. With one on each side, nobody knows how much runs
    differ, so it counts if it is more than the calls of a run vary. If the runs cannot be compared in full, the first
    lines say so.

    The report of --page shows both critical paths and flame graphs, and all views of the newest run of NEW. Attributes
    may contain confidential data: --no-attributes and --redact hide them in all that the command prints and writes.

    Exit codes: 0, 1 if --fail-on applies or there are no spans, 2 for wrong usage.
    """
    if in_json and in_markdown:
        raise click.UsageError("--json and --markdown are different outputs: give one of them")
    replace = page_file is not None and outputs.may_replace(
        page_file, force=force, is_ours=page.is_report, option="--page"
    )
    redaction = page.Redaction(attributes=not no_attributes, redact=redact)
    now, before = (
        _runs(paths, what, engine, redaction, everything=everything) for paths, what in ((new, _TO), (base, "BASE"))
    )
    analyses = [[each.analysis for each in runs if isinstance(each, AnalyzedRun)] for runs in (now, before)]
    option = "--page" if page_file is not None else "" if redaction.shows_all else "--no-attributes or --redact"
    if option and [*map(len, analyses)] != [len(now), len(before)]:
        raise click.UsageError(f"{option} needs runs in memory: give --engine {MEMORY}, which takes more of it")
    with engine_errors("comparing several runs"):
        found = compared(now, before)
    if in_json:
        click.echo(json.dumps(document.document(found)))
    elif in_markdown:
        click.echo("\n".join(text.markdown(found)))
    else:
        print_lines(text.lines(found))
    if page_file is not None:
        shown = [each if isinstance(each, str) else each._asdict() for each in text.parts(found)]
        newest = max(analyses[0], key=lambda each: each.path.start)
        compared_page = page_of(analyses[0], analyses[1], shown)
        write(page_file, newest, replace=replace, source=new[-1], redaction=redaction, comparison=compared_page)
    if any(each.fails(found) for each in bounds):
        raise click.exceptions.Exit(1)


def _runs(
    paths: Sequence[str], what: str, engine: str | None, redaction: page.Redaction, *, everything: bool
) -> list[MeasuredRun]:
    """The runs of a side. Ends the command with exit code 2 if one is given twice."""
    found: dict[str, MeasuredRun] = {}
    for path in paths:
        for run in runs_of([path], engine, everything=everything, redaction=redaction):
            if run.id in found:
                message = f"{safe(path)} has run {run.id}, which {what} has already: give each run once"
                raise click.BadParameter(message, param_hint=what)
            found[run.id] = run
    return list(found.values())
