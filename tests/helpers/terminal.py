"""What the command prints on a terminal, which differs from what it prints into a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

STYLE = re.compile("\x1b\\[([0-9;]*)m")
"""The start or the end of a style or colour; the group is its number."""


def in_terminal(width: int, *arguments: object, **variables: str) -> list[str]:
    """The lines that ``ray-tracing-hooks`` prints on a terminal of this width."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 40, width, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8", **variables}
    for variable in ("COLUMNS", "LINES"):
        environment.pop(variable, None)
    command = [sys.executable, "-m", "ray_tracing_hooks", *map(str, arguments)]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        output = b""
        while True:
            try:
                output += os.read(controller, 65536)
            except OSError:  # Linux reports in this way that the other end is closed
                break
        os.close(controller)
    assert process.returncode == 0, output
    return output.decode().splitlines()
