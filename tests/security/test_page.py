"""The page on security names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "SECURITY.md"


def test_every_claim_has_its_test() -> None:
    page = PAGE.read_text()
    named = set(re.findall(r"\btest_\w+\b(?!\.py)", page))
    there = "".join(path.read_text() for path in TESTS.glob("*/test_*.py"))
    assert len(named) > 25
    assert [name for name in sorted(named) if f"def {name}(" not in there] == []
    files = set(re.findall(r"\b(test_\w+\.py)", page))
    assert [name for name in sorted(files) if not [*TESTS.glob(f"*/{name}")]] == []
