"""The spools of a node and whether their shippers work, as `status`, `doctor` and `collect` find them."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from shipping import Node, until

from ray_tracing_hooks._ops.spools import spools_of

NODE_ID = "a" * 56
SESSION = "session_2026-11-25_00-38-55_281040_31184"
LABEL = SESSION.removeprefix("session_")


def look(node: Node) -> dict[str, Any]:
    (found,) = spools_of(None, "", str(node.spool), {})
    return found


def test_a_shipper_hangs_if_it_does_nothing_for_a_while_and_not_if_there_was_nothing_to_do(node: Node) -> None:
    """What it has stored last is as old as the last change."""
    shipper = node.start()
    writer = node.writer()
    writer.do("span 1 10")
    assert node.flush().done
    status = node.spool / "status.json"
    until(lambda: json.loads(status.read_text())["destinations"][0]["delivered"] == 10, "the figures are stored")
    status.write_text(json.dumps({**json.loads(status.read_text()), "updated_ns": 1}))
    os.utime(status, (0, 0))
    until(lambda: time.time() - status.stat().st_mtime < 10, "the shipper shows that it works")
    shipper.send_signal(signal.SIGSTOP)
    writer.do("span 11 30")
    found = look(node)
    assert found["figures"]["updated_ns"] == 1
    assert (found["runs"], found["is_stuck"], found["figures"]["destinations"][0]["waiting"]) == (True, False, 20)
    os.utime(status, (0, 0))
    assert look(node)["is_stuck"]
    shipper.send_signal(signal.SIGCONT)
    assert node.flush().done
    writer.end()


def in_a_folder_of_its_own(node: Node, name: str, label: str) -> None:
    """A spool below the folder of the node, as RAY_TRACING_SPOOL_DIR has it."""
    node.spool.rmdir()
    node.spool = node.folder / "spools" / name
    node.spool.mkdir(mode=0o700, parents=True)
    node.make_plan(label=label).store(str(node.spool))


def test_spools_in_the_folder_of_the_settings_are_found_by_a_process_that_is_not_traced(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_folder_of_its_own(node, f"{NODE_ID[:12]}-00000000", f"{LABEL}-{NODE_ID[:8]}")
    session = str(tmp_path / SESSION)
    assert spools_of(session, NODE_ID, None, {}) == []
    monkeypatch.setenv("RAY_TRACING_SPOOL_DIR", str(node.folder / "spools"))
    assert [each["path"] for each in spools_of(session, NODE_ID, None, {})] == [str(node.spool)]
    assert spools_of(session, "b" * 56, None, {}) == [], "those of other nodes are theirs"


def test_of_a_session_that_is_over_its_own_spools_are_found_there(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_folder_of_its_own(node, f"{NODE_ID[:12]}-00000000", f"{LABEL}-{NODE_ID[:8]}")
    monkeypatch.setenv("RAY_TRACING_SPOOL_DIR", str(node.folder / "spools"))
    assert [each["path"] for each in spools_of(str(tmp_path / SESSION), "", None, {})] == [str(node.spool)]
    assert spools_of(str(tmp_path / "session_2026-11-26_00-00-00_0_1"), "", None, {}) == []
