"""Checks the distributions in a folder before they are published: ``distribution.py dist WHAT [v1.2.3]``.

``WHAT`` is ``plain`` for the source archive and the wheel in pure Python, or ``compiled`` for wheels with the compiled
part. They must hold what the repository does, and wheels only the package, no more and no less, in the version that the
tag says.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "ray_tracing_hooks/"
NOT_PUBLISHED = (".github/", ".gitignore")
NOT_INSTALLED = ("/package.json", ".d.ts", ".c", ".h")
"""What the checks and tests of the report's JavaScript need, and the report does not; and what is compiled."""

OURS = (".py", ".pyi", "/py.typed", ".js", ".css", ".html", ".abi3.so")
"""How the names of files of this project end. Nothing of others is in a wheel: no library, font or definition."""

COMPILED = PACKAGE + "_hotpath.abi3.so"
TAGS = re.compile(r"-cp310-abi3-manylinux[\w.]+_(x86_64|aarch64)\.whl$")
"""How the names of wheels with the compiled part end: one is for all versions of Python."""

_RELATIVE = re.compile(r"\[[^\]]*\]\((?![a-z]+:|#)[^)\s]+\)|\bsrc(?:set)?=\"(?![a-z]+:)[^\"]+\"")


def problems(folder: Path, what: str, tag: str) -> list[str]:
    """What is wrong with the distributions in the folder; nothing where it is empty. ``tag`` may be empty."""
    wheels, archives = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if what == "compiled":
        found = [problem for wheel in wheels for problem in _wheel(wheel, tag, {COMPILED})]
        found += [f"{wheel.name} is not for all versions of Python" for wheel in wheels if not TAGS.search(wheel.name)]
        return found if wheels and not archives else [*found, f"{folder} has to hold compiled wheels, and nothing else"]
    if len(wheels) != 1 or len(archives) != 1:
        return [f"{folder} has to hold one wheel and one source archive, and holds {len(wheels)} and {len(archives)}"]
    with tarfile.open(archives[0]) as archive:
        in_archive = {member.name.partition("/")[2] for member in archive.getmembers() if not member.isdir()}
    tracked = {file for file in _tracked() if not file.startswith(NOT_PUBLISHED)}
    return [
        *_wheel(wheels[0], tag, set()),
        *_differences("the source archive", in_archive - {".gitignore"}, tracked | {"PKG-INFO"}),
    ]


def _wheel(path: Path, tag: str, compiled: set[str]) -> list[str]:
    """What is wrong with a wheel that has ``compiled`` beside the package."""
    with zipfile.ZipFile(path) as wheel:
        name = "-".join(path.name.split("-")[:2])
        metadata = message_from_bytes(wheel.read(f"{name}.dist-info/METADATA"))
        in_wheel = {file for file in wheel.namelist() if not file.startswith(f"{name}.dist-info/")}
        licensed = f"{name}.dist-info/licenses/LICENSE" in wheel.namelist()
        foreign = [file for file in in_wheel if not file.endswith(OURS) or b"opyright" in wheel.read(file)]
    installed = {file for file in _tracked() if file.startswith(PACKAGE) and not file.endswith(NOT_INSTALLED)}
    found = [*_differences(path.name, in_wheel, installed | compiled), *_metadata(metadata, tag)]
    found += [f"{file} is not of this project, it seems: its license has to be in the wheel" for file in foreign]
    return found if licensed else [*found, f"{path.name} has no LICENSE"]


def _tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def _differences(where: str, found: set[str], expected: set[str]) -> list[str]:
    return [
        *(f"{where} lacks {file}" for file in sorted(expected - found)),
        *(f"{where} holds {file}, which the repository does not" for file in sorted(found - expected)),
    ]


def _metadata(metadata: Message, tag: str) -> list[str]:
    found = []
    version = metadata["Version"]
    if tag and tag != f"v{version}":
        found.append(f"the tag is {tag}, and the version {version}")
    if tag and not metadata.get_all("Project-URL"):
        found.append("a release has to say where the project is: URL=https://...")
    description = str(metadata.get_payload())
    if metadata.get_all("Project-URL"):
        found += [f"the README has a link that leads nowhere: {link}" for link in _RELATIVE.findall(description)]
    if metadata["Description-Content-Type"] != "text/markdown" or "# ray-tracing-hooks" not in description:
        found.append("the README is not in the metadata")
    return found


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
    print(*wrong, sep="\n", file=sys.stderr)
    sys.exit(bool(wrong))
