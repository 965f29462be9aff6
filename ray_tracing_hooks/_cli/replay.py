"""``ray-tracing-hooks replay``: sends recorded spans from files or a leftover spool to an exporter."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import click

from ray_tracing_hooks._cli.options import Number, examples, json_option
from ray_tracing_hooks._cli.screen import SafeError, progress, warn
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._ops.sources import is_session
from ray_tracing_hooks._safety.guard import TracingError
from ray_tracing_hooks._settings.table import Settings, load
from ray_tracing_hooks._settings.values import Hint
from ray_tracing_hooks._ship.files import PLAN
from ray_tracing_hooks._spool.layout import SUFFIX, is_spool_name

if TYPE_CHECKING:
    from ray_tracing_hooks._ship.log import Secrets
    from ray_tracing_hooks._ship.plan import ShipPlan
    from ray_tracing_hooks._ship.replay import Replay, SelectedSpans


@click.command(
    epilog=examples(
        "ray-tracing-hooks replay /tmp/spans --exporter otlp",
        "ray-tracing-hooks replay /tmp/ray/session_latest/ray_tracing_hooks --dry-run",
        "ray-tracing-hooks replay /tmp/spans --exporter otlp --attribute 'gen_ai.*'",
    ),
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option("--exporter", "exporters", metavar="NAME", multiple=True, help="The exporter; repeat it for several.")
@click.option(
    "--attribute",
    metavar="KEY",
    help="Send only spans with an attribute whose key matches this, such as gen_ai.*, and their ancestors.",
)
@click.option("--again", is_flag=True, help="Start from the beginning, even if an earlier replay has sent some spans.")
@click.option("--dry-run", is_flag=True, help="Send nothing; only show how many spans would be sent where.")
@click.option(
    "--retry-for",
    "timeout",
    type=Number(0, is_seconds=True),
    default=60,
    show_default=True,
    help="How long to retry while nothing is delivered.",
)
@json_option
@click.pass_context
def replay(
    context: click.Context,
    paths: tuple[str, ...],
    exporters: tuple[str, ...],
    attribute: str | None,
    again: bool,
    dry_run: bool,
    timeout: float,
    in_json: bool,
) -> None:
    """Send spans from files, or from a leftover spool, to an exporter.

    A PATH is a file of OTLP-JSON lines (*.jsonl, *.jsonl.gz) from any tool, or a folder of such files. It can also be a
    spool folder, or a folder above it. Subfolders are included. Nothing is removed.

    Without --exporter, the exporters are the ones in RAY_TRACING_EXPORTERS. If that is unset or only local, a spool
    goes to the exporters that it was recorded for, and files go to otlp. The exporters use the same variables as in a
    job, such as OTEL_EXPORTER_OTLP_ENDPOINT.

    --json prints an object for each exporter, each on its own line.

    The progress is stored next to the files, for each exporter, address and --attribute. After an interruption, run the
    command again, and it continues from there. If files have grown, it sends only the new spans. The exit code is 1 if
    not all could be sent, and 2 if a dry run finds a wrong setting.
    """
    from ray_tracing_hooks._ship.log import Secrets, others_on_stderr  # noqa: PLC0415  not needed to print a help text

    problems: list[str] = []
    settings = load(os.environ, problems.append).in_session()
    for problem in problems:
        warn(problem)
    folders = _folders(paths)
    if not folders:
        if not in_json:
            click.echo("nothing is left to send: a spool is removed once its shipper has delivered everything in it")
        return
    environ = _delivery_environment(settings)
    wanted = _wanted(exporters, settings, environ, folders)
    wrong, failed = dry_run and _are_wrong(problems), False
    with ExitStack() as stack:
        _hold(stack, folders)
        # ``environ`` has those of a settings file too.
        secrets = Secrets(os.environ, environ)
        stack.enter_context(others_on_stderr(secrets))
        only = _selection(folders, attribute) if attribute else None
        for plan, of_plan in wanted.items():
            run = _Replays(plan, environ, secrets, timeout=timeout, again=again, in_json=in_json, only=only)
            if dry_run:
                wrong |= not run.try_out(of_plan)
            else:
                failed |= not run.run(of_plan)
    if wrong or failed:
        context.exit(2 if wrong else 1)


def _selection(folders: Mapping[str, Sequence[str]], key: str) -> SelectedSpans:
    """The spans that have an attribute with such a key, and their ancestors, wherever these are."""
    from ray_tracing_hooks._insight.analysis.recorded import unread  # noqa: PLC0415  imports NumPy
    from ray_tracing_hooks._insight.ingest.load import load as load_spans  # noqa: PLC0415  as above
    from ray_tracing_hooks._ship.replay import SelectedSpans  # noqa: PLC0415  not needed to print a help text

    table = load_spans([file for files in folders.values() for file in files])
    kept: set[int] = set()
    for row in table.as_recorded(range(len(table))):
        if any(fnmatchcase(name, key) for name in table.span(row).attributes):
            above = row
            while above >= 0 and above not in kept:
                kept.add(above)
                above = table.parent[above]
    if problems := unread(table.quality):
        warn(problems, "note")
    if not kept:
        raise SafeError(f"no span has an attribute {key!r}: nothing would be sent")
    return SelectedSpans(key, {bytes.fromhex(table.trace_id_of(row) + table.span_id_of(row)) for row in kept})


def _are_wrong(problems: Sequence[str]) -> bool:
    """Whether something that the user has set is not followed."""
    return not all(isinstance(problem, Hint) for problem in problems)


class _Replays:
    """The replays of folders to one exporter, by its plan."""

    def __init__(
        self,
        plan: ShipPlan,
        environ: Mapping[str, str],
        secrets: Secrets,
        *,
        timeout: float,
        again: bool,
        in_json: bool,
        only: SelectedSpans | None,
    ) -> None:
        from ray_tracing_hooks._ship.log import Problems  # noqa: PLC0415  not needed to print a help text
        from ray_tracing_hooks._ship.registry import destinations  # noqa: PLC0415  as above

        (self._exporter,) = plan.exporters
        self._environ = environ
        self._timeout = timeout
        self._again = again
        self._in_json = in_json
        self._only = only
        self._secrets = secrets
        self._problems = Problems(self._secrets.mask)
        self._reported: set[str] = set()
        self._plan = plan
        places, self._wrong = destinations(self._plan, environ)
        self._is_usable = bool(places)
        self._where = places[0] if places else self._exporter

    def try_out(self, folders: Mapping[str, Sequence[str]]) -> bool:
        """Report what is wrong with the settings, and how much would be sent; whether nothing is wrong."""
        from ray_tracing_hooks._ship.replay import check  # noqa: PLC0415  as above

        for problem in self._wrong:
            warn(self._secrets.mask(problem), "warning" if self._is_usable else "error")
        if not self._is_usable:
            return False
        try:
            check(self._plan, self._environ)
        except TracingError as error:
            warn(f"{self._where}: {self._secrets.mask(str(error))}", "error")
            return False
        self.run(folders, dry_run=True)
        return not _are_wrong(self._wrong)

    def run(self, folders: Mapping[str, Sequence[str]], *, dry_run: bool = False) -> bool:
        """Run the replays; whether everything was sent."""
        from ray_tracing_hooks._ship.replay import Replay  # noqa: PLC0415  as above

        replays = [
            Replay(folder, files, self._plan, self._environ, self._problems, again=self._again, only=self._only)
            for folder, files in folders.items()
        ]
        began = time.monotonic()
        failure = None
        try:
            with progress(shown=not self._in_json) as advance:

                def portion() -> None:
                    advance(f"{self._where}: {count(sum(each.sent for each in replays), 'span')}", 0, 0)

                for each in replays:
                    if dry_run:
                        each.count(portion)
                    else:
                        each.run(self._timeout, portion, self._waiting)
        except TracingError as error:
            failure = self._secrets.mask(str(error))
        except KeyboardInterrupt:
            self._sum_up(replays, "interrupted", time.monotonic() - began, dry_run=dry_run)
            raise
        self._sum_up(replays, failure, time.monotonic() - began, dry_run=dry_run)
        return failure is None and not self._problems.lost

    def _sum_up(self, replays: Sequence[Replay], failure: str | None, seconds: float, *, dry_run: bool) -> None:
        sent, lost = sum(each.sent for each in replays), sum(each.lost for each in replays)
        for problem in self._problems.take_unreported():
            warn(problem)
        # Keep the lines apart from what the exporter `console` prints.
        echo = partial(click.echo, err=self._exporter == "console")
        if self._in_json:
            described = {
                "exporter": self._exporter,
                "destination": self._where,
                "is_dry_run": dry_run,
                "spans": sent,
                "lost": lost,
                "error": failure,
            }
            echo(json.dumps(described))
        elif failure is not None:
            warn(
                f"{self._where}: {failure}. {_number(sent, lost)} sent; run it again"
                f"{' without --again' if self._again else ''} to continue from there.",
                "error",
            )
        elif dry_run:
            echo(f"{count(sent, 'span')} would be sent to {self._where}")
        elif not sent:
            echo(f"nothing is left to send to {self._where}; --again sends everything again")
        else:
            echo(f"{_number(sent, lost)} sent to {self._where} in {duration(seconds * 1e9)}")

    def _waiting(self, problem: str) -> None:
        problem = self._secrets.mask(problem)
        if problem not in self._reported:
            self._reported.add(problem)
            warn(f"{problem}; retrying for {self._timeout:g} s")


def _number(spans: int, lost: int) -> str:
    """How many spans have arrived."""
    return f"{spans - lost:,} of {count(spans, 'span')}" if lost else count(spans, "span")


def _folders(paths: Sequence[str]) -> dict[str, list[str]]:
    """The files to replay, by folder. Ends the command if there are none, but for spools that have been delivered."""
    paths = [path for path in paths if not _is_delivered(path)]
    if not paths:
        return {}
    try:
        for path in paths:
            if path.endswith(SUFFIX) and not os.path.isdir(path):
                os.stat(path)
                raise SafeError(f"{path!r} is part of a spool: expected the spool folder")
        files = span_files(paths, with_subfolders=True)
    except FileNotFoundError as error:
        raise SafeError(f"{error.filename!r} does not exist: expected a file or folder of spans, or a spool") from None
    except OSError as error:
        raise SafeError(f"{error.filename!r} cannot be read: {error.strerror}") from None
    if not files:
        raise SafeError(f"no spans in {', '.join(paths)}: no *.jsonl, *.jsonl.gz or *.spool there")
    # By the real path of the folder, so that no file is sent twice.
    real = sorted({os.path.join(os.path.realpath(os.path.dirname(file)), os.path.basename(file)) for file in files})
    return {folder: list(found) for folder, found in groupby(real, os.path.dirname)}


def _is_delivered(path: str) -> bool:
    """Whether this is a spool without spans, or would be one if it were there, or the folder of all in a session."""
    parent, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(path):
        return is_spool_name(name) and os.path.isdir(parent) and not os.path.lexists(path)
    is_of_spools = is_spool_name(name) or os.path.exists(os.path.join(path, PLAN)) or is_session(parent)
    return is_of_spools and not span_files([path], with_subfolders=True)


def _wanted(
    given: Sequence[str], settings: Settings, environ: Mapping[str, str], folders: Mapping[str, Sequence[str]]
) -> dict[ShipPlan, dict[str, Sequence[str]]]:
    """What to send by which plan, with one exporter each. Ends the command if an exporter cannot be used."""
    found: dict[ShipPlan, dict[str, Sequence[str]]] = {}
    others: dict[str, Sequence[str]] = {}
    asked = list(dict.fromkeys(given)) or [name for name in settings.exporters if settings.exporters != ("local",)]
    for folder, files in folders.items():
        theirs = None if asked else _plan_of(folder)
        if theirs is None:
            others[folder] = files
            continue
        _check(theirs.exporters, theirs.settings.local_dir, folders)
        for name in theirs.exporters:
            plan = _plan(settings, name, environ)
            if name == "local":
                plan = plan._replace(settings=_of_spans(theirs), label=theirs.label)
            found.setdefault(plan, {})[folder] = files
    if others:
        own = os.path.realpath(settings.local_dir) in others
        names = asked if given else [name for name in asked if name != "local" or not own]
        names = names or ["otlp"]
        _check(names, settings.local_dir, folders)
        for name in names:
            found.setdefault(_plan(settings, name, environ), {}).update(others)
    return found


def _plan(settings: Settings, exporter: str, environ: Mapping[str, str]) -> ShipPlan:
    from ray_tracing_hooks._ship.plan import ShipPlan  # noqa: PLC0415  not needed to print a help text

    plan = ShipPlan.of(settings, (exporter,), environ, label="replay")
    return plan._replace(settings=_of_spans(plan), log_records=False)


def _of_spans(plan: ShipPlan) -> Settings:
    """The settings of a plan without metrics, which are not replayed."""
    return plan.with_settings(metrics=False, utilization=None).settings


def _plan_of(folder: str) -> ShipPlan | None:
    """The plan by which the spool in this folder was to be delivered."""
    from ray_tracing_hooks._ship.plan import ShipPlan  # noqa: PLC0415  as above

    try:
        plan = ShipPlan.load(folder)
    except (OSError, ValueError):
        return None
    return plan if plan.exporters else None


def _check(names: Sequence[str], local_dir: str, folders: Mapping[str, Sequence[str]]) -> None:
    """Ends the command if an exporter is unknown or would read what it writes."""
    from ray_tracing_hooks._settings.table import SINKS  # noqa: PLC0415  not needed to print a help text
    from ray_tracing_hooks._ship.sinks import entry_point  # noqa: PLC0415  not needed to print a help text

    for name in names:
        if name not in SINKS and not entry_point.is_installed(name):
            raise click.BadParameter(
                f"unknown exporter {name!r}: expected one of {', '.join(SINKS)}, or an installed OpenTelemetry "
                f"exporter ({', '.join(entry_point.names())})",
                param_hint="--exporter",
            )
    if "local" in names and os.path.realpath(local_dir) in folders:
        raise click.BadParameter(
            f"'local' writes to {local_dir}, which is being replayed: expected another RAY_TRACING_LOCAL_DIR",
            param_hint="--exporter",
        )


def _delivery_environment(settings: Settings) -> dict[str, str]:
    """The variables that configure delivery.

    Other OTEL_* variables are removed from this process, as for a shipper: some invalid values make any import of the
    API fail.
    """
    from ray_tracing_hooks._ship.plan import with_settings  # noqa: PLC0415  as above

    environ = with_settings(os.environ, settings)
    for name in [name for name in os.environ if name.startswith("OTEL_") and name not in environ]:
        del os.environ[name]
    return environ


def _hold(stack: ExitStack, folders: Mapping[str, Sequence[str]]) -> None:
    from ray_tracing_hooks._ship.replay import held  # noqa: PLC0415  as above

    for folder, files in folders.items():
        try:
            stack.enter_context(held(folder, is_spool=any(file.endswith(SUFFIX) for file in files)))
        except TracingError as error:
            raise SafeError(str(error)) from None
