"""What the command prints on a terminal, which differs from what it prints into a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import traceback
import warnings

from ray_tracing_hooks._cli import main

STYLE = re.compile("\x1b\\[([0-9;]*)m")
"""The start or the end of a style or colour; the group is its number."""


def in_terminal(width: int, *arguments: object, **variables: str) -> list[str]:
    """The lines that ``ray-tracing-hooks`` prints on a terminal of this width.

    It runs in a fork of this process, which has imported already what it needs.
    """
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 40, width, 0, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads
        child = os.fork()
    if not child:
        _run(terminal, [*map(str, arguments)], variables)
    os.close(terminal)
    output = b""
    while True:
        try:
            output += os.read(controller, 65536)
        except OSError:  # Linux reports in this way that the other end is closed
            break
    os.close(controller)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, output
    return output.decode().splitlines()


def _run(terminal: int, arguments: list[str], variables: dict[str, str]) -> None:
    """Become a process whose standard streams are the terminal, and end with the command."""
    code: object = 1
    try:
        for number in range(3):
            os.dup2(terminal, number)
        os.close(terminal)
        for variable in ("COLUMNS", "LINES"):
            os.environ.pop(variable, None)
        os.environ.update({"TERM": "xterm", **variables})
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  the process ends
        sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        main(arguments, prog_name="ray-tracing-hooks")
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001  nobody else would see it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(0 if code in (None, 0) else 1)
