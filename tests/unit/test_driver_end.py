"""Which exception ends a driver: the one that ends the interpreter, and none that others have noted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TELLING = """
import atexit, sys
from ray_tracing_hooks._ray.driver import exit_code, fatal_error

def tell():
    error = fatal_error()
    print("FATAL", type(error).__name__, exit_code(error) if error is not None else None, file=sys.__stdout__)

atexit.register(tell)
"""

FATAL = {
    "an exception": 'raise ValueError("text")',
    "one from deep within": "(lambda: [][1])()",
    "no Exception": 'raise BaseException("text")',
    "one without truth": "class Untrue(Exception):\n    __bool__ = __len__ = None\nraise Untrue",
    "a hook of the program's": "sys.excepthook = lambda *_: None\nraise ValueError",
    "in a hook of the program's": "sys.excepthook = lambda *_: (tell(), atexit.unregister(tell))\nraise ValueError",
    "a later one": 'import code\ncode.InteractiveInterpreter().runsource("1/0")\nraise ValueError',
    "by a signal": "raise KeyboardInterrupt",
}
EXPECTED = {
    "one from deep within": "IndexError 1",
    "no Exception": "BaseException 1",
    "one without truth": "Untrue 1",
    "by a signal": "KeyboardInterrupt None",
}

HARMLESS = {
    "nothing": "",
    "sys.exit": "sys.exit(3)",
    "a cell of a notebook": 'import code\ncode.InteractiveInterpreter().runsource("1/0")',
    "a cell in this module": 'import code\ncode.InteractiveInterpreter(globals()).runsource("1/0")',
    "a console within": (
        "import code, io\nsys.stdin = io.StringIO('1/0\\n')\n"
        "code.interact(local=globals())\nvars(sys).pop('ps1', None), vars(sys).pop('ps2', None)"
    ),
    "a window's callback": (
        "def callback():\n    raise ValueError\n"
        "try:\n    callback()\nexcept ValueError as error:\n    sys.last_value = sys.last_exc = error.with_traceback("
        "error.__traceback__.tb_next)"
    ),
    "a thread": "import threading\nthread = threading.Thread(target=lambda: 1 / 0)\nthread.start()\nthread.join()",
    "no exception at all": "sys.last_value = sys.last_exc = 'text'",
    "a test that fails": (
        "import pytest\nopen('test_failing.py', 'w').write('def test_failing(): assert False')\n"
        "options = '-q --assert=plain --disable-plugin-autoload -p no:cacheprovider'\n"
        "pytest.main([*options.split(), 'test_failing.py'])"
    ),
}


def told(*command: str, folder: Path, text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False, input=text, env=os.environ
    )
    found = [line for line in done.stdout.splitlines() if "FATAL " in line]
    assert len(found) == 1, done
    return found[0].partition("FATAL ")[2]


@pytest.mark.parametrize("how", FATAL)
def test_what_nothing_catches_ends_the_driver(how: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TELLING + FATAL[how])
    assert told("program.py", folder=tmp_path) == EXPECTED.get(how, "ValueError 1")


@pytest.mark.parametrize("command", [["-m", "program"], ["-c", "{}"], ["folder"], ["-"]], ids=lambda each: each[0])
def test_in_whatever_way_the_program_is_run(command: list[str], tmp_path: Path) -> None:
    program = TELLING + FATAL["an exception"]
    (tmp_path / "folder").mkdir()
    for path in ("program.py", "folder/__main__.py"):
        (tmp_path / path).write_text(program)
    command = [part.replace("{}", program) for part in command]
    assert told(*command, folder=tmp_path, text=program) == "ValueError 1"


@pytest.mark.parametrize("how", HARMLESS)
def test_what_is_caught_or_noted_by_others_does_not(how: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TELLING + HARMLESS[how])
    assert told("program.py", folder=tmp_path) == "NoneType None"


@pytest.mark.parametrize("command", [["-i"], ["-i", "program.py"]], ids=len)
def test_an_interactive_session_goes_on_after_an_error(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TELLING + FATAL["an exception"])
    typed = "1/0\n" if len(command) > 1 else f"{TELLING}\n1/0\n"
    assert told(*command, folder=tmp_path, text=typed) == "NoneType None"
