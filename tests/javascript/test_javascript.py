"""The JavaScript of the report by itself, in node."""

from __future__ import annotations

import json
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
from installed import program

from ray_tracing_hooks._insight.analysis.wording import duration

HERE = Path(__file__).parent


@pytest.mark.parametrize("file", sorted(each.name for each in HERE.glob("*.test.js")))
def test_in_node(file: str) -> None:
    """What a file of tests says of the page's logic."""
    done = subprocess.run(
        [program("node"), "--test", HERE / file], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_of_node_is_in_the_wheel() -> None:
    """Only what the page is put together from."""
    assets = files("ray_tracing_hooks._insight.views.page").joinpath("assets")
    kinds = {each.name.partition(".")[2] for each in assets.iterdir()}
    assert kinds == {"css", "html", "js"}


def test_durations_read_alike() -> None:
    """In the commands and in the page."""
    for nanoseconds, text in json.loads((HERE / "cases" / "durations.json").read_text("utf-8"))["printed"]:
        assert duration(nanoseconds) == text
