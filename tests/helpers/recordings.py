"""Recorded runs of ``tests/insight/corpus``, its scenes and its programs, and what commands show of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from ray_tracing_hooks._cli import main

RECORDED = Path(__file__).parent.parent / "insight" / "recorded"


def recorded(name: str) -> str:
    """The file of a run: of a scene, or else of a program of the corpus."""
    path = RECORDED / f"{name}.jsonl.gz"
    return str(path if path.exists() else RECORDED.parent / "corpus" / "recorded" / path.name)


def shown(*arguments: str) -> str:
    """The standard output of a command that succeeds."""
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def document(name: str, *more: str) -> dict[str, Any]:
    """The JSON document of the summary of a run."""
    found: dict[str, Any] = json.loads(shown("summary", recorded(name), "--json", *more))
    return found
