"""Metadata of a release in addition to pyproject.toml: the project's address, and the README with absolute links.

A checkout does not know the address of the project. A release sets it in ``PROJECT_URL``, such as
https://example.org/owner/project, and its tag in ``PROJECT_TAG``. The README's links to files of the repository then
become absolute, since a package index shows the README without those files. Otherwise links are unchanged.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<picture>!?)(?P<text>\[[^\]]*\])\((?![a-z]+:|#)(?P<path>[^)\s]+)\)")
_SOURCE = re.compile(r"(?P<name>\bsrc(?:set)?=\")(?![a-z]+:)(?P<path>[^\"]+)\"")


class Metadata(MetadataHookInterface):
    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        url, tag = os.environ.get("PROJECT_URL", "").rstrip("/"), os.environ.get("PROJECT_TAG", "")
        if url and tag:
            readme = whole_links(readme, url, tag)
            metadata["urls"] = {
                "Homepage": url,
                "Source": url,
                "Documentation": f"{url}/blob/{tag}/docs",
                "Changelog": f"{url}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{url}/issues",
                "Security": f"{url}/blob/{tag}/SECURITY.md",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


def whole_links(text: str, url: str, tag: str) -> str:
    """The Markdown with its links to repository files made absolute, for the repository at ``url`` and ``tag``."""
    text = _SOURCE.sub(lambda source: f'{source["name"]}{url}/raw/{tag}/{source["path"]}"', text)
    return _LINK.sub(lambda link: f"{link['picture']}{link['text']}({url}/{_view(link)}/{tag}/{link['path']})", text)


def _view(link: re.Match[str]) -> str:
    return "raw" if link["picture"] else "blob"
