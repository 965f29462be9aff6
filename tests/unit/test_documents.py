"""What the documents name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOR_CONTRIBUTORS = ["CONTRIBUTING.md", "docs/ARCHITECTURE.md"]
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for folder in (".", "docs", "deploy/kubernetes", "tests/benchmarks/results")
    for path in (ROOT / folder).glob("*.md")
)


def quoted(document: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", (ROOT / document).read_text(), flags=re.DOTALL))


def without_code(document: str) -> str:
    return re.sub(r"^```.*?^```", "", (ROOT / document).read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(document: str) -> set[str]:
    """What a link to a heading of the document ends with, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)", without_code(document), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", FOR_CONTRIBUTORS)
def test_every_path_is_there(document: str) -> None:
    """From the top of the repository, or from that of the package. NAME stands for a name."""
    quoted = re.findall(r"`([^`\n]+)`", without_code(document))
    paths = {name for name in quoted if re.fullmatch(r"[\w./-]*(/[\w./-]*|\.(py|md))", name)}
    assert len(paths) > 20
    tops = (ROOT, ROOT / "ray_tracing_hooks")
    assert not {path for path in paths if "NAME" not in path and not any((top / path).exists() for top in tops)}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_somewhere(document: str) -> None:
    """To a file of the repository, and to a heading in it where the link names one."""
    for link in re.findall(r"\]\((?!https?:)([^)]+)", without_code(document)):
        name, _, anchor = link.partition("#")
        path = (ROOT / document).parent / name if name else ROOT / document
        assert path.exists(), link
        assert not anchor or anchor in anchors(str(path)), link


def test_the_readme_or_the_contributors_page_leads_to_every_document() -> None:
    pages = without_code("README.md") + without_code("CONTRIBUTING.md")
    links = re.findall(r"\]\((?:docs/)?([^)#/]+)", pages)
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= set(links)


@pytest.mark.parametrize("document", FOR_CONTRIBUTORS)
def test_every_command_is_in_the_makefile(document: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"`make (\w+)", (ROOT / document).read_text()))
    assert not {command for command in commands - {"help"} if not re.search(rf"^{command}:", makefile, re.MULTILINE)}


@pytest.mark.parametrize(
    ("heading", "document"),
    [
        ("Ray Serve", "serve"),
        ("Ray Data", "ray-data"),
        ("Sampling", "sampling"),
        ("Metrics", "metrics"),
        ("Analysis", "analysis"),
        ("Logs", "logs"),
    ],
)
def test_an_example_in_the_readme_is_that_of_its_document(heading: str, document: str) -> None:
    """Or a part of it, line by line."""
    section = re.search(rf"^#+ {heading}\n(.*?)(?=^##+ )", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert section
    blocks = re.findall(r"^```\w+\n(.*?)^```", section[1], re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines() if line.strip() not in {"", "..."}]
    assert lines
    assert set(lines) <= set((ROOT / "docs" / f"{document}.md").read_text().splitlines())
