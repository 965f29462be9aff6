"""What users see changes only on purpose: contract.txt holds it, and each change of it shows as a difference there."""

from __future__ import annotations

import difflib

import contract


def test_what_users_see_is_what_the_file_says() -> None:
    stored, now = contract.FILE.read_text(encoding="utf-8"), contract.text()
    lines = difflib.unified_diff(stored.splitlines(), now.splitlines(), "contract.txt", "the code", lineterm="", n=1)
    difference = "\n".join(lines)
    assert not difference, f"if this change is on purpose, write the file anew: make reference\n{difference}"
