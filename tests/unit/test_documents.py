"""What the documents for contributors name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["CONTRIBUTING.md", "docs/ARCHITECTURE.md"]


def quoted(document: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", (ROOT / document).read_text(), flags=re.DOTALL))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_is_there(document: str) -> None:
    """From the top of the repository, or from that of the package. NAME stands for a name."""
    paths = {name for name in quoted(document) if re.fullmatch(r"[\w./-]*(/[\w./-]*|\.(py|md))", name)}
    assert len(paths) > 20
    tops = (ROOT, ROOT / "ray_tracing_hooks")
    assert not {path for path in paths if "NAME" not in path and not any((top / path).exists() for top in tops)}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_somewhere(document: str) -> None:
    text = (ROOT / document).read_text()
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert links
    assert not [link for link in links if not ((ROOT / document).parent / link).exists()]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_is_in_the_makefile(document: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"`make (\w+)", (ROOT / document).read_text()))
    assert not {command for command in commands - {"help"} if not re.search(rf"^{command}:", makefile, re.MULTILINE)}
