"""The site of the documents: ``make docs``."""

from __future__ import annotations

import re
from typing import Any

project = "ray-tracing-hooks"
html_title = project
html_theme = "furo"
html_copy_source = False
extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = True
exclude_patterns = ["ARCHITECTURE.md"]  # for contributors


def _tree_of_contents(_app: Any, name: str, source: list[str]) -> None:
    """The lists of links on the first page are the navigation, so that pages need no other markup."""
    if name != "index":
        return
    for section in re.split(r"^(?=## )", source[0], flags=re.MULTILINE)[1:]:
        pages = re.findall(r"^- \[.*?\]\(([\w/-]+)\.md\)", section, re.MULTILINE)
        caption = section.splitlines()[0].removeprefix("## ")
        source[0] += "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```\n"])


def setup(app: Any) -> None:
    app.connect("source-read", _tree_of_contents)
