"""Where commands write to: what is no file stays what it is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hand_made import HandMade

from ray_tracing_hooks._cli import main

COMMANDS = (["view", "--no-attributes"], ["export", "--format", "otlp"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one span."""
    found = tmp_path / "spans"
    found.mkdir()
    made = HandMade()
    made.driver(0, 10)
    (found / "a.jsonl").write_bytes(made.as_json_lines())
    return found


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("options", [(), ("--force",)])
def test_what_is_no_file_stays_what_it_is(
    folder: Path, tmp_path: Path, command: list[str], options: tuple[str, ...]
) -> None:
    """A FIFO, a device, and a path of standard output, also if that is a file."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    controller, terminal = os.openpty()
    for given in (fifo, os.ttyname(terminal)):
        refused = run(*command, folder, "-o", given, *options)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "is a folder, a FIFO, a device or standard output" in refused.stderr
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert stat.S_ISCHR(os.fstat(terminal).st_mode)
    os.close(terminal)
    os.close(controller)
    link, log = tmp_path / "stdout", tmp_path / "log"
    link.symlink_to("/proc/self/fd/1")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    asked = [sys.executable, "-m", "ray_tracing_hooks", *command, str(folder), "-o", str(link), *options]
    with log.open("wb") as file:
        done = subprocess.run(asked, env=environment, stdout=file, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, b"is a folder, a FIFO, a device or standard output" in done.stderr) == (1, True)
    assert (link.is_symlink(), log.read_bytes()) == (True, b"")
    assert sorted(os.listdir(tmp_path)) == ["fifo", "log", "spans", "stdout"]
