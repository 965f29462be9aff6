"""The site of the documents: ``make docs``."""

from __future__ import annotations

import os
import re
from typing import Any

project = "ray-tracing-hooks"
html_title = project
html_theme = "furo"
html_copy_source = False
extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = True
exclude_patterns = ["ARCHITECTURE.md", "GLOSSARY.md"]  # for contributors


def _links_out(_app: Any, name: str, source: list[str]) -> None:
    """Links to files outside of this folder lead to the repository, where a release says its address."""
    url, tag = os.environ.get("PROJECT_URL", "").rstrip("/"), os.environ.get("PROJECT_TAG", "")

    def whole(link: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join("docs", os.path.dirname(name), link[2]))
        if path.startswith("docs/") and not path.endswith(("ARCHITECTURE.md", "GLOSSARY.md")):
            return link[0]
        return f"[{link[1]}]({url}/blob/{tag}/{path}{link[3] or ''})" if url and tag else link[1]

    source[0] = re.sub(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)", whole, source[0])


def _tree_of_contents(_app: Any, name: str, source: list[str]) -> None:
    """The lists of links on the first page are the navigation, so that pages need no other markup."""
    if name != "index":
        return
    for section in re.split(r"^(?=## )", source[0], flags=re.MULTILINE)[1:]:
        pages = re.findall(r"^- \[.*?\]\(([\w/-]+)\.md\)", section, re.MULTILINE)
        caption = section.splitlines()[0].removeprefix("## ")
        source[0] += "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```\n"])


def setup(app: Any) -> None:
    app.connect("source-read", _links_out)
    app.connect("source-read", _tree_of_contents)
