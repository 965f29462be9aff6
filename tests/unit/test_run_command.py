"""``ray-tracing-hooks run``: what a program notices of it. With Ray in it, see ``tests/ray/test_run.py``."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._cli.run import _problem
from ray_tracing_hooks._run.inside import Note

RUN = (sys.executable, "-m", "ray_tracing_hooks", "run")

UNTRACED = "the program did not connect to Ray"


def run(*arguments: object, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, *map(str, arguments)],
        input=given,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def program(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text)
    return path


SAYS_ALL = """
import json, os, signal, sys
skipped = ("RAY_TRACING_", "LC_CTYPE", "_")
print(json.dumps({
    "argv": sys.argv,
    "path": sys.path,
    "cached": [path for path in sys.path_importer_cache if "on_path" in path],
    "sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None),
    "environment": {name: value for name, value in os.environ.items() if not name.startswith(skipped)},
    "input": sys.stdin.read(),
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "handled": {number.name: str(signal.getsignal(number)).partition(" at ")[0] for number in signal.Signals},
    "main": __spec__ and __spec__.name,
    "open": [file for file in (3, 4, 5, 6, 7, 8) if os.path.exists(f"/proc/self/fd/{file}")],
    "group": os.getpgid(0) == os.getpgid(os.getppid()),
}))
"""


@pytest.mark.parametrize(
    ("note", "said"),
    [
        (Note(hook="ray_tracing_hooks:setup"), "went to otlp, as RAY_TRACING_EXPORTERS says, and not to local files"),
        (Note(is_client=True), "went to otlp, as RAY_TRACING_EXPORTERS says, and not to local files"),
        (
            Note(hook="ray_tracing_hooks.otlp:setup"),
            "went to otlp, as the hook ray_tracing_hooks.otlp:setup says, and not to local files",
        ),
    ],
)
def test_spans_that_went_elsewhere_went_by_the_hook_that_is_named(note: Note, said: str) -> None:
    """Only one hook does as RAY_TRACING_EXPORTERS says."""
    assert said in _problem([note._replace(is_traced=True, exporters=("otlp",))])


@pytest.mark.parametrize(("is_module", "custom"), [(False, True), (True, False)])
def test_a_program_finds_what_it_finds_without(tmp_path: Path, is_module: bool, custom: bool) -> None:
    """Arguments, input, environment, import path, signals, open files, and a sitecustomize of its own."""
    path = program(tmp_path, SAYS_ALL)
    variables = {"PYTHONPATH": str(tmp_path / "more")}
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "module.py").write_text(SAYS_ALL)
    if custom:
        (tmp_path / "more" / "sitecustomize.py").write_text("")
    what = ["-m", "module"] if is_module else [str(path)]
    read, write = os.pipe()
    try:

        def said(*command: str) -> str:
            done = subprocess.run(
                [*command, *what, "--view", "-m", "a b"],
                input="given",
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                check=True,
                pass_fds=(read,),
            )
            return done.stdout

        assert said(*RUN) == said(sys.executable)
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize(
    ("does", "code"),
    [
        ("raise SystemExit(7)", 7),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import signal; signal.raise_signal(signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_the_command_ends_as_the_program_ends(tmp_path: Path, does: str, code: int) -> None:
    """By its exit code or by its signal. A message on standard error says that the program did not use Ray."""
    done = run(program(tmp_path, does), RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"))
    assert done.returncode == code
    assert UNTRACED in done.stderr
    assert not done.stdout
    assert not (tmp_path / "spans").exists()


ENDED_AT_ONCE = """
import os
spawned = os.posix_spawn
def ended(*arguments, **options):
    child = spawned(*arguments, **options)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return child
os.posix_spawn = ended
from ray_tracing_hooks._cli import main
main()
"""


@pytest.mark.parametrize("parents", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_program_may_end_before_the_command_waits_for_it(tmp_path: Path, parents: signal.Handlers) -> None:
    """Its end is noticed, whether or not the parent of the command ignored the ends of its children."""
    done = subprocess.run(
        [sys.executable, "-c", ENDED_AT_ONCE, "run", program(tmp_path, "raise SystemExit(7)")],
        capture_output=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, parents),
    )
    assert done.returncode == 7


COUNTS = """
import os, signal, sys
receives, notes = os.pipe()
os.set_blocking(notes, False)
signal.set_wakeup_fd(notes)  # gets a byte for each signal
def note(number, _):
    print(signal.Signals(number).name.removeprefix("SIG"), flush=True)
signal.signal(signal.SIGTERM, note)
signal.signal(signal.SIGINT, note)
print("ready", flush=True)
sys.stdin.readline()
print(len(os.read(receives, 100)))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_command_comes_to_the_program_once(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [*RUN, str(program(tmp_path, COUNTS))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "ready\n"
        command.send_signal(number)
        assert command.stdout.readline() == f"{number.name.removeprefix('SIG')}\n"
        out, _ = command.communicate("\n")
    assert out == "1\n"
    assert command.returncode == 0


def _lines(terminal: io.FileIO) -> Iterator[bytes]:
    with suppress(OSError):  # the other end is closed
        while True:
            yield terminal.readline().strip()


def test_ctrl_c_at_a_terminal_comes_to_the_program_once(tmp_path: Path) -> None:
    terminal, other_end = pty.openpty()
    mode = termios.tcgetattr(other_end)
    mode[3] = mode[3] & ~termios.ECHO | termios.NOFLSH  # Ctrl-C discards no output
    termios.tcsetattr(other_end, termios.TCSANOW, mode)
    # A leader of a session has the first terminal that it opens as its own.
    opens = "import os, sys; [os.dup2(os.open(sys.argv[1], os.O_RDWR), file) for file in range(3)]; "
    opens += "os.execv(sys.argv[2], sys.argv[2:])"
    command = [sys.executable, "-c", opens, os.ttyname(other_end), *RUN, str(program(tmp_path, COUNTS))]
    with (
        subprocess.Popen(command, start_new_session=True) as running,
        os.fdopen(terminal, "r+b", buffering=0) as screen,
    ):
        lines = _lines(screen)
        assert next(lines) == b"ready"
        os.close(other_end)
        for _ in range(10):  # two that follow at once may become one
            screen.write(b"\x03")
            assert b"INT" in lines
        screen.write(b"\n")
        assert [line for line in lines if line.isdigit()] == [b"10"]
        assert running.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.py"], "'nowhere.py' does not exist: expected a Python file, or -m and a module"),
        (["python3", "program.py"], "Leave out 'python3': ray-tracing-hooks run program.py"),
        (["ls"], "commands that are not Python files are not supported"),
        (["--output", "{file}", "{file}"], "expected a folder for the spans: it is not a folder"),
        (["--output", "{file}/spans", "{file}"], "expected a folder for the spans"),
        (["--output", "", "{file}"], "it is empty: expected a folder for the spans"),
        ([], "Missing argument 'PROGRAM'"),
    ],
)
def test_wrong_use_says_what_is_expected(tmp_path: Path, arguments: list[str], says: str) -> None:
    file = program(tmp_path, "")
    done = CliRunner().invoke(main, ["run", *(each.format(file=file) for each in arguments)])
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())


def test_a_store_that_cannot_be_is_said_before_the_program_runs(tmp_path: Path) -> None:
    path = program(tmp_path, "print('ran')")
    for place, said in ((path, "is no folder"), ("", "is no folder"), ("nothing://x/runs", "it needs fsspec")):
        result = CliRunner().invoke(main, ["run", "--keep", str(place), str(path)])
        assert (result.exit_code, result.stdout) == (2, ""), result.stderr
        assert "--keep" in result.stderr
        assert said in " ".join(result.stderr.split())
