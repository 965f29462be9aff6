"""``ray-tracing-hooks run``: a program as it stands, traced, and where its time went."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

import click

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli.summary import print_summary
from ray_tracing_hooks._cli.text import count, examples, warn
from ray_tracing_hooks._cli.view import opened_in_browser
from ray_tracing_hooks._cli.view import write as write_page
from ray_tracing_hooks._escape import safe
from ray_tracing_hooks._guard import describe
from ray_tracing_hooks._insight.views.page import is_report
from ray_tracing_hooks._run import child, notes
from ray_tracing_hooks._run.notes import Errand, Note
from ray_tracing_hooks._settings import SETTINGS, Settings, load_with_sources
from ray_tracing_hooks._ship.flush import flush

_PAGE = "report.html"
_RAY = next(setting for setting in SETTINGS if setting.name == "ray")
_WAITS = frozenset({"get", "wait"})


@click.command(
    context_settings={"allow_interspersed_args": False},
    short_help="Run a program with tracing on, and sum it up.",
    epilog=examples(
        "ray-tracing-hooks run train.py --epochs 3",
        "ray-tracing-hooks run --open -m package.module",
        "ray-tracing-hooks run --spans spans/today train.py",
    ),
)
@click.argument("program", type=click.Path())
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option(
    "--spans", metavar="DIR", help="Where spans go; by default a new folder in that of RAY_TRACING_LOCAL_DIR."
)
@click.option("--view", "views", is_flag=True, help=f"Write the page of `view` too, as {_PAGE} beside the spans.")
@click.option("--open", "opens", is_flag=True, help="The same, and open it in the browser.")
@click.option("--no-waits", is_flag=True, help="Do not record where the program waits, in ray.get and ray.wait.")
def run(
    program: str,
    arguments: tuple[str, ...],
    is_module: bool,
    spans: str | None,
    views: bool,
    opens: bool,
    no_waits: bool,
) -> None:
    """Run a Python program with tracing on, and say where its time went.

    The program needs no edit: where it starts a Ray cluster, by ray.init() or by its first call, that has the hook
    ray_tracing_hooks:setup. A hook that the program names itself stays. It runs by this Python, with its own input,
    output and exit code; the summary is on standard error.

    A program that joins a running cluster is traced if that cluster has a hook, and all of it goes where that
    cluster's spans go. Programs that it starts are not traced, but for what they do in its cluster.

    The RAY_TRACING_* variables count as always. RAY_TRACING_LOCAL_DIR is set for the program, and RAY_TRACING_RAY,
    unless you have set that, so that waiting is recorded: so it is known who waited for whom.
    """
    settings, sources = load_with_sources(os.environ, warn)
    _check(program, is_module=is_module)
    folder = _folder(spans, program, settings)
    environ = {"RAY_TRACING_LOCAL_DIR": folder}
    if sources["ray"] == "default" and not no_waits:
        environ["RAY_TRACING_RAY"] = _RAY.kind.write(settings.ray | _WAITS)
    command = [sys.executable, *(["-m"] if is_module else []), program, *arguments]
    handle, path = tempfile.mkstemp(prefix="ray-tracing-hooks-run-")
    os.close(handle)
    try:
        try:
            code = child.run(command, _environment(path, environ, has_own_folder=spans is None))
        except OSError as error:
            raise click.ClickException(f"{command[0]} cannot be started: {error.strerror}") from None
        _sum_up(list(notes.read(path)), folder, settings, views=views or opens, opens=opens)
    finally:
        os.unlink(path)
    child.end_as(code)


def _check(program: str, *, is_module: bool) -> None:
    """End the command with exit code 2 for what is no program."""
    if is_module or os.path.exists(program):
        return
    hint = ""
    if os.path.basename(program).startswith("python"):
        hint = f". Leave {program!r} out: ray-tracing-hooks run program.py"
    elif shutil.which(program):
        hint = ", and commands that are no Python file are not run"
    raise click.BadParameter(f"{program!r} does not exist: expected a Python file, or -m and a module{hint}")


def _folder(given: str | None, program: str, settings: Settings) -> str:
    """The folder for the spans of this run, which is made when there are some."""
    if given is not None:
        if os.path.lexists(given) and not os.path.isdir(given):
            raise click.BadParameter(f"{given!r} is not a folder", param_hint="--spans")
        return os.path.abspath(given)
    name = os.path.splitext(os.path.basename(os.path.abspath(program)))[0]
    return os.path.join(settings.local_dir, f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")


def _environment(path: str, added: Mapping[str, str], *, has_own_folder: bool) -> dict[str, str]:
    python_path = os.environ.get("PYTHONPATH")
    errand = Errand(path, python_path, os.environ.get("RAY_TRACING_LOCAL_DIR"), has_own_folder)
    first = os.path.join(os.path.dirname(notes.__file__), "on_path")
    return {
        **os.environ,
        **added,
        "PYTHONPATH": os.pathsep.join(filter(None, [first, python_path])),
        notes.VARIABLE: str(errand),
    }


# --- Afterwards ---------------------------------------------------------------------------------------------------


def _sum_up(told: Sequence[Note], folder: str, settings: Settings, *, views: bool, opens: bool) -> None:
    """Say what there is to say of the run. Nothing that goes wrong here changes the program's exit code."""
    try:
        _deliver(told, settings)
        problem = _problem(told)
        if problem:
            warn(problem, "ray-tracing-hooks")
        where = next((note.local_dir for note in told if note.local_dir), "")
        if where:
            _show(told, where, is_of_run=where == folder, views=views, opens=opens)
    except click.ClickException as error:
        warn(error.format_message(), "ray-tracing-hooks")
    except KeyboardInterrupt:
        pass
    except Exception as error:  # noqa: BLE001  the command ends as the program has ended
        warn(f"the run cannot be summed up: {describe(error)}", "ray-tracing-hooks")


def _deliver(told: Sequence[Note], settings: Settings) -> None:
    """Wait for what a program that was killed could not wait for: the delivery of its spans."""
    for spool, is_own in {note.spool: note.is_own for note in told if note.spool}.items():
        result = flush(spool, settings.flush_timeout, until_writers_end=is_own)
        for text in (*result.problems, *result.waiting) if result.running else ():
            warn(text)


def _problem(told: Sequence[Note]) -> str:
    """Why there are no spans here, or not all of them; empty if there are."""
    if not told:
        return (
            "the program has not connected to Ray, so there is nothing to show. Programs that it starts are not traced"
        )
    if problem := next((note.problem for note in told if note.problem), ""):
        return f"the hook could not be set: {problem}. Name it in the program: {_EDIT}"
    note = next((note for note in told if not note.is_traced), None)
    if note is not None:
        return _untraced(note)
    if not all(note.local_dir for note in told):
        exporters = ", ".join(dict.fromkeys(name for note in told for name in note.exporters)) or "nowhere"
        return (
            f"spans of this run went to {exporters} (RAY_TRACING_EXPORTERS), and not to files that could be summed up: "
            "add local to have both"
        )
    joined = next((note for note in told if not note.is_own), None)
    if joined is not None:
        return (
            f"the program has joined the cluster at {joined.address}. Spans of its workers go where that cluster's "
            f"settings say; here are those in {joined.local_dir}"
        )
    return ""


_EDIT = 'ray.init(_tracing_startup_hook="ray_tracing_hooks:setup")'


def _untraced(note: Note) -> str:
    if note.is_client:
        return "the program is a Ray Client, and tracing of it could not be set up"
    if note.has_hook:
        return (
            f"{'its' if note.is_own else 'the'} cluster at {note.address} has a tracing hook of another package, so "
            "this one has traced nothing"
        )
    if note.is_own:
        return f"the hook was not taken by this version of Ray. Name it in the program: {_EDIT}"
    return (
        f"nothing was traced: the cluster at {note.address}, which the program has joined, was started without a "
        "tracing hook. Name one where it is started (ray start --head "
        "--tracing-startup-hook=ray_tracing_hooks.local:setup), or have the program start a cluster of its own "
        "(unset RAY_ADDRESS; address='local')"
    )


def _show(told: Sequence[Note], folder: str, *, is_of_run: bool, views: bool, opens: bool) -> None:
    """``is_of_run`` says that the folder holds this run; otherwise it is the trace of the program in it."""
    trace_id = next((note.trace_id for note in told if note.trace_id), None) if not is_of_run else None
    analysis, number = inputs.chosen(inputs.table([folder]), trace_id, [folder])
    click.echo(err=True)
    print_summary(analysis, number, err=True)
    click.echo(err=True)
    quoted = safe(shlex.quote(folder) + (f" --trace {trace_id}" if trace_id else ""))
    if not views:
        click.echo(f"{count(len(analysis.table), 'span')} in {safe(folder)}. As a page: ", nl=False, err=True)
        click.echo(f"ray-tracing-hooks view {quoted} --open", err=True)
        return
    page = os.path.join(folder, _PAGE)
    if os.path.lexists(page) and not is_report(page):
        raise click.ClickException(f"{page!r} is no report of ours and stays: ray-tracing-hooks view {quoted} -o FILE")
    write_page(page, analysis, replace=True, source=os.path.basename(folder))
    shown = opens and opened_in_browser(page)
    click.echo(
        f"{count(len(analysis.table), 'span')} in {safe(folder)}. The page: {safe(page)}"
        f"{'' if shown else ' (open it in a browser)'}",
        err=True,
    )
