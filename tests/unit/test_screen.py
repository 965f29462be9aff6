"""What commands show on a terminal."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import pytest

from ray_tracing_hooks._cli.screen import cell_len, counted, fitted, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "48")


def test_progress_is_one_line_that_disappears() -> None:
    """What is done is shown at once, and how much of it now and then; names cannot command the terminal."""
    with redirect_stderr(Terminal()) as terminal, progress() as advance:
        counted(advance, "reading", 4)(1)
        advance("asking node\x1b[31m " + "n" * 100, 0, 1)
    _, first, second, end = terminal.getvalue().split("\r\x1b[K")
    assert (first, end) == ("reading  #####...............  1 of 4", "")
    assert second == ("asking node\\x1b[31m " + "n" * 100)[:47]


def test_progress_may_be_of_bytes() -> None:
    with redirect_stderr(Terminal()) as terminal, progress(is_size=True) as advance:
        advance("reading", 3 << 20, 4 << 20)
    _, line, _ = terminal.getvalue().split("\r\x1b[K")
    assert line.startswith("reading  ###############.....  3.")


def test_progress_is_not_shown_where_a_command_prints_json() -> None:
    with redirect_stderr(Terminal()) as terminal, progress(shown=False) as advance:
        advance("reading", 1, 2)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "columns", "cut"), [("abc", 3, "ab"), ("日本", 4, "日"), ("e\u0301x", 2, "e\u0301x"), ("", 0, "  ")]
)
def test_wide_characters_take_two_columns(text: str, columns: int, cut: str) -> None:
    """Combining ones none. What is fitted has the columns that are asked for."""
    assert cell_len(text) == columns
    assert fitted(text, 2) == cut
    assert cell_len(fitted(text, 5)) == 5
