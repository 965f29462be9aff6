"""``ray-tracing-hooks run``: runs an unmodified program with tracing, and shows where its time went."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from ray_tracing_hooks._cli.options import examples
from ray_tracing_hooks._cli.screen import warn
from ray_tracing_hooks._insight.analysis.wording import count
from ray_tracing_hooks._ops.hooks import BY_SETTINGS
from ray_tracing_hooks._run import inside
from ray_tracing_hooks._run.inside import LaunchInfo, Note
from ray_tracing_hooks._safety.guard import describe, safe
from ray_tracing_hooks._safety.private import open_folder
from ray_tracing_hooks._safety.secrets import TEXT, is_name_of_secret
from ray_tracing_hooks._settings.table import Settings, load_with_sources
from ray_tracing_hooks._settings.values import MASK, SESSION
from ray_tracing_hooks._ship.flush import flush

_REPORT = "report.html"
_RAY = next(setting for setting in Settings.rows if setting.name == "ray")
_WAITS = frozenset({"get", "wait"})


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "ray-tracing-hooks run train.py --epochs 3",
        "ray-tracing-hooks run --open -m package.module",
        "ray-tracing-hooks run --output spans/today train.py",
        "ray-tracing-hooks run --keep runs train.py",
    ),
)
@click.argument("program", type=click.Path())
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as with python -m.")
@click.option(
    "-o", "--output", metavar="DIR", help="The folder for spans; by default a new one inside RAY_TRACING_LOCAL_DIR."
)
@click.option(
    "--keep",
    "store",
    metavar="STORE",
    help="Also write the run to this store of runs: a folder, or a URL for fsspec such as s3://bucket/runs.",
)
@click.option("--view", "views", is_flag=True, help=f"Also write the report, {_REPORT} next to the spans.")
@click.option("--open", "opens", is_flag=True, help="Write the report, and open it in your browser.")
@click.option("--no-waits", is_flag=True, help="Do not record waits in ray.get and ray.wait.")
def run(
    program: str,
    arguments: tuple[str, ...],
    is_module: bool,
    output: str | None,
    store: str | None,
    views: bool,
    opens: bool,
    no_waits: bool,
) -> None:
    """Run a Python program with tracing, and show where its time went.

    The program needs no change: each Ray cluster that it starts, with ray.init() or its first call, gets the hook
    ray_tracing_hooks:setup. If the program sets a hook itself, that one is used. The program runs in this Python, with
    its own input, output and exit code. The summary is printed on standard error.

    A program that joins a running cluster is traced if that cluster has a hook. Its spans then go to the destination of
    the cluster. Programs that your program starts are not traced, except for their calls in its cluster.

    The RAY_TRACING_* variables apply as usual. RAY_TRACING_LOCAL_DIR is set for the program. RAY_TRACING_RAY is set
    too, unless you have set it, so that waits are recorded and the analysis knows who waited for whom.
    """
    settings, sources = load_with_sources(os.environ, warn)
    _check(program, is_module=is_module)
    if store is not None:
        from ray_tracing_hooks._cli.keeping import check  # noqa: PLC0415  as in `_show`

        check(store, "--keep")
    folder = _folder(output, program, settings)
    environ = {"RAY_TRACING_LOCAL_DIR": folder}
    if sources["ray"] == "default" and not no_waits:
        environ["RAY_TRACING_RAY"] = _RAY.kind.write(settings.ray | _WAITS)
    command = [sys.executable, *(["-m"] if is_module else []), program, *arguments]
    handle, path = tempfile.mkstemp(prefix="ray-tracing-hooks-run-")
    os.close(handle)
    try:
        try:
            has_own_folder = output is None and folder != SESSION
            code = _run_child(command, _environment(path, environ, has_own_folder=has_own_folder))
        except OSError as error:
            raise click.ClickException(f"{command[0]} could not be started: {error.strerror}") from None
        kept = Kept(store, arguments, sources) if store is not None else None
        _sum_up(list(inside.read(path)), folder, settings, kept, views=views or opens, opens=opens)
    finally:
        os.unlink(path)
    _end_as(code)


def _check(program: str, *, is_module: bool) -> None:
    """End the command with exit code 2 if this is not a program."""
    if is_module or os.path.exists(program):
        return
    hint = ""
    if os.path.basename(program).startswith("python"):
        hint = f". Leave out {program!r}: ray-tracing-hooks run program.py"
    elif shutil.which(program):
        hint = "; commands that are not Python files are not supported"
    raise click.BadParameter(f"{program!r} does not exist: expected a Python file, or -m and a module{hint}")


def _folder(given: str | None, program: str, settings: Settings) -> str:
    """The folder for the spans of this run. One that is given is created now, another one with the first spans."""
    if given is not None:
        if not given:
            raise click.BadParameter("it is empty: expected a folder for the spans", param_hint="--output")
        try:
            os.close(open_folder(given, given=True))
        except OSError as error:
            why = f"expected a folder for the spans: {error.strerror}"
            raise click.BadParameter(f"{given!r}: {why}", param_hint="--output") from None
        return os.path.abspath(given)
    if settings.local_dir == SESSION:
        return SESSION  # which is not there yet
    name = os.path.basename(os.path.abspath(program)).removesuffix(".py")
    return os.path.join(settings.local_dir, f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")


def _environment(path: str, added: Mapping[str, str], *, has_own_folder: bool) -> dict[str, str]:
    python_path = os.environ.get("PYTHONPATH")
    errand = LaunchInfo(path, python_path, os.environ.get("RAY_TRACING_LOCAL_DIR"), has_own_folder)
    first = os.path.join(os.path.dirname(inside.__file__), "on_path")
    return {
        **os.environ,
        **added,
        "PYTHONPATH": os.pathsep.join(filter(None, [first, python_path])),
        inside.VARIABLE: str(errand),
    }


# --- Afterwards ---------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """Where the run is kept, and what its spans do not say."""

    store: str
    arguments: Sequence[str]
    sources: Mapping[str, str]
    """By setting, where its value comes from."""

    def more(self, known: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
        """What to say of it in place of what is ``known``."""
        given = {name for name, source in self.sources.items() if source != "default"}
        return {
            "program": {
                **known["program"],
                "arguments": redacted(self.arguments),
                "commit": _commit() or known["program"]["commit"],
            },
            "settings": {
                setting.variable: MASK if setting.secret else setting.kind.write(getattr(settings, setting.name))
                for setting in Settings.rows
                if setting.name in given
            },
        }


def redacted(arguments: Sequence[str]) -> list[str]:
    """Arguments of a command, without what is a secret by its form or by the name of its option."""
    found: list[str] = []
    before = ""
    for each in arguments:
        name, equals, _ = each.partition("=")
        if before.startswith("-") and "=" not in before and is_name_of_secret(before.lstrip("-")):
            found.append(MASK)
        elif equals and is_name_of_secret(name.lstrip("-")):
            found.append(f"{name}={MASK}")
        else:
            found.append(MASK if TEXT.search(each) else each)
        before = each
    return found


def _commit() -> str | None:
    """The commit of the working directory, with ``-dirty`` if files of it are changed; None outside of a repository."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],  # noqa: S607  the user's git
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    return done.stdout.strip() or None


_GIT_TIMEOUT = 10


def _sum_up(
    connections: Sequence[Note], folder: str, settings: Settings, kept: Kept | None, *, views: bool, opens: bool
) -> None:
    """Report on the run. A failure here does not change the program's exit code."""
    try:
        _deliver(connections, settings)
        problem = _problem(connections)
        if problem:
            warn(problem, "ray-tracing-hooks")
        where = next((note.local_dir for note in connections if note.local_dir), "")
        if where:
            _show(connections, where, settings, kept, is_of_run=where == folder, views=views, opens=opens)
    except click.ClickException as error:
        warn(error.format_message(), "ray-tracing-hooks")
    except KeyboardInterrupt:
        pass
    except Exception as error:  # noqa: BLE001  the command must end as the program ended
        warn(f"the run cannot be summarized: {describe(error)}", "ray-tracing-hooks")


def _deliver(connections: Sequence[Note], settings: Settings) -> None:
    """Wait for the delivery of spans, for programs that were killed and could not wait themselves."""
    for spool, is_own in {note.spool: note.is_own for note in connections if note.spool}.items():
        result = flush(spool, settings.flush_timeout, until_writers_end=is_own)
        for text in (*result.problems, *result.waiting) if result.running else ():
            warn(text)


def _problem(connections: Sequence[Note]) -> str:
    """Why spans are missing here; empty if they are complete."""
    if not connections:
        return "the program did not connect to Ray, so there is nothing to show. Programs that it starts are not traced"
    if problem := next((note.problem for note in connections if note.problem), ""):
        return f"the hook could not be set: {problem}. Set it in the program: {_EDIT}"
    note = next((note for note in connections if not note.is_traced), None)
    if note is not None:
        return _untraced(note)
    note = next((note for note in connections if not note.local_dir), None)
    if note is not None:
        return _elsewhere(note)
    joined = next((note for note in connections if not note.is_own), None)
    if joined is not None:
        return (
            f"the program joined the cluster at {joined.address}. The spans of its workers go where that cluster's "
            f"settings say; these are the ones in {joined.local_dir}"
        )
    return ""


def _elsewhere(note: Note) -> str:
    """Why there are no local files, and what to change: only one hook does as RAY_TRACING_EXPORTERS says."""
    others = ",".join(note.exporters)
    by = f"as the hook {note.hook} says" if note.hook not in {"", BY_SETTINGS} else "as RAY_TRACING_EXPORTERS says"
    return (
        f"spans of this run went to {others or 'nowhere'}, {by}, and not to local files, so there is no summary: to "
        f"have both, use the hook {BY_SETTINGS} and set RAY_TRACING_EXPORTERS={','.join(('local', *note.exporters))}"
    )


_EDIT = 'ray.init(_tracing_startup_hook="ray_tracing_hooks:setup")'


def _untraced(note: Note) -> str:
    if note.is_client:
        return "the program is a Ray Client, and its tracing could not be set up"
    if note.has_hook:
        return f"the cluster at {note.address} has a tracing hook of another package, so nothing was traced by this one"
    if note.is_own:
        return f"this version of Ray did not use the hook. Set it in the program: {_EDIT}"
    return (
        f"nothing was traced: the program joined the cluster at {note.address}, which was started without a tracing "
        "hook. Set one where it is started (ray start --head "
        "--tracing-startup-hook=ray_tracing_hooks.local:setup), or let the program start its own cluster "
        "(unset RAY_ADDRESS; address='local')"
    )


def _show(
    connections: Sequence[Note],
    folder: str,
    settings: Settings,
    kept: Kept | None,
    *,
    is_of_run: bool,
    views: bool,
    opens: bool,
) -> None:
    """Print the summary. ``is_of_run`` says that the folder has only this run; otherwise show the program's trace."""
    # The analysis takes longer to import than some programs to run, and is needed only where there are spans.
    from ray_tracing_hooks._cli import inputs  # noqa: PLC0415
    from ray_tracing_hooks._cli.summary import print_summary  # noqa: PLC0415
    from ray_tracing_hooks._cli.view import opened_in_browser  # noqa: PLC0415
    from ray_tracing_hooks._cli.view import write as write_report  # noqa: PLC0415
    from ray_tracing_hooks._insight.views.page import is_report  # noqa: PLC0415

    trace_id = next((note.trace_id for note in connections if note.trace_id), None) if not is_of_run else None
    which = inputs.Which(trace_id)
    table, number = which.of(which.table([folder]))
    analysis = inputs.analysed(table, which.folders)
    click.echo(err=True)
    print_summary(analysis, number, err=True)
    quoted = safe(shlex.quote(folder) + (f" --trace {trace_id}" if trace_id else ""))
    if kept is not None:
        from ray_tracing_hooks._cli.keeping import keep, written_text  # noqa: PLC0415  as above
        from ray_tracing_hooks._insight.ingest.sources import shown as without_user  # noqa: PLC0415  as above

        written = keep(kept.store, table, which.folders, more=lambda known: kept.more(known, settings), hint="--keep")
        click.echo(written_text(kept.store, written), err=True)
        quoted = safe(shlex.quote(f"{without_user(kept.store)}@{written[0]['id']}"))
    if not views:
        click.echo(f"more: ray-tracing-hooks summary {quoted}", err=True)
        click.echo(f"as a report: ray-tracing-hooks view {quoted} --open", err=True)
        return
    report = os.path.join(folder, _REPORT)
    if os.path.lexists(report) and not is_report(report):
        raise click.ClickException(
            f"{report!r} exists and is not a report: name another, ray-tracing-hooks view {quoted} -o FILE"
        )
    write_report(report, analysis, replace=True, source=os.path.basename(folder))
    shown = opens and opened_in_browser(Path(report).absolute().as_uri())
    click.echo(
        f"{count(len(analysis.table), 'span')} in {safe(folder)}. The report: {safe(report)}"
        f"{'' if shown else ' (open it in a browser)'}",
        err=True,
    )


_PASSED_ON = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGWINCH,
    }
)
"""Signals that are meant for the program, whichever of the two processes receives them."""

_OF_TERMINAL = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH})
_SI_KERNEL = 0x80
"""The ``si_code`` of a signal that no process has sent. A terminal's go to the whole process group."""


def _run_child(command: list[str], environ: Mapping[str, str]) -> int:
    """Run a program to its end, with this process's files and in its process group; returns its exit code.

    Negative for the signal that ended it, as in :mod:`subprocess`. A signal that this process receives meanwhile is
    forwarded to the program, unless a terminal has sent it (Ctrl-C), which sends it to the program too. Raises OSError
    if the program cannot start.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    # Our parent may have set it to be ignored, and then the end of the child would not be signalled. Set once the child
    # runs, it would discard the signal of one that has ended already.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        # Not subprocess: it closes further files that the shell has opened for the program.
        child = os.posix_spawn(
            command[0],
            command,
            environ,
            setsigmask=before,
            # Python ignores them, and the program would inherit that.
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
        while True:
            received = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD})
            number = received.si_signo
            if number == signal.SIGCHLD:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    return os.waitstatus_to_exitcode(status)
            elif received.si_code != _SI_KERNEL or number not in _OF_TERMINAL:
                os.kill(child, number)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_as(code: int) -> NoReturn:
    """End this process as the program ended: with its exit code, or by the same signal."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        # Only the program's core dump is of interest.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with suppress(OSError):  # SIGKILL has no other effect
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
        code = 128 - code  # as a shell reports it, where the signal has no effect on this process
    sys.exit(code)
