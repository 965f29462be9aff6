"""Where commands write to: what is no file stays what it is."""

from __future__ import annotations

import gzip
import os
import stat
import subprocess
import sys
import threading
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
def test_a_fifo_gets_what_a_file_would_have(folder: Path, tmp_path: Path, command: list[str]) -> None:
    """It is still there afterwards, and nothing else is."""
    assert run(*command, folder, "-o", tmp_path / "file").exit_code == 0
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    reader.start()
    written = run(*command, folder, "-o", fifo)
    reader.join(60)
    assert (written.exit_code, written.stdout) == (0, "")
    assert f"{fifo}: 1 span" in written.stderr
    assert found == [(tmp_path / "file").read_bytes()]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["fifo", "file", "spans"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("is_file", [False, True])
def test_standard_output_gets_it_by_its_path(folder: Path, tmp_path: Path, command: list[str], is_file: bool) -> None:
    """A pipe as well as a file, to which it is added: ``>>`` may have opened it. Nothing else is printed there."""
    assert run(*command, folder, "-o", tmp_path / "file").exit_code == 0
    link = tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    asked = [sys.executable, "-m", "ray_tracing_hooks", *command, str(folder), "-o", str(link)]
    if is_file:
        log = tmp_path / "log"
        log.write_bytes(b"before\n")
        with log.open("ab") as file:
            subprocess.run(asked, env=environment, stdout=file, check=True, timeout=60)
        found = log.read_bytes().removeprefix(b"before\n")
    else:
        found = subprocess.run(asked, env=environment, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    assert found == (tmp_path / "file").read_bytes()
    assert link.is_symlink()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_that_is_full_says_so(folder: Path, command: list[str]) -> None:
    """As a disk that is full."""
    refused = run(*command, folder, "-o", "/dev/full")
    assert refused.exit_code == 1
    assert "/dev/full: No space left on device" in refused.stderr
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a FIFO that belongs to somebody else")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_fifo_of_another_user_gets_nothing_by_accident(folder: Path, tmp_path: Path, command: list[str]) -> None:
    """He may have put it where he knows that a file will be written."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    os.chown(fifo, 65534, -1)
    refused = run(*command, folder, "-o", fifo)
    assert refused.exit_code == 1
    assert "belongs to another user: --force writes to it" in " ".join(refused.stderr.split())


def test_a_packed_export_goes_into_a_fifo(folder: Path, tmp_path: Path) -> None:
    """Packed by its name, as a file."""
    fifo = tmp_path / "fifo.gz"
    os.mkfifo(fifo)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    reader.start()
    assert run("export", folder, "--format", "otlp", "-o", fifo).exit_code == 0
    reader.join(60)
    assert gzip.decompress(found[0]) == (folder / "a.jsonl").read_bytes()
