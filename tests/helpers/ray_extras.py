"""Prints what some extras of the installed Ray ask for, a requirement a line: ``ray_extras.py default serve``.

With what has been published since, an older Serve does not go together in every case: what it cannot use is capped.
"""

from __future__ import annotations

import sys
from importlib.metadata import requires, version

from packaging.requirements import Requirement
from packaging.version import Version

_CAPS = {
    "fastapi": ("2.54", "<0.117"),  # its applications cannot be pickled by Ray before
    "protobuf": ("2.55", "<7"),  # the messages of Serve before lack what it asks for
}
"""By package: the first Ray that goes together with the newest version, and what an older one goes together with."""


def wanted(extras: list[str]) -> list[str]:
    """The requirements, without the conditions under which they hold here."""
    lines = set()
    for requirement in map(Requirement, requires("ray") or ()):
        if requirement.marker and any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            lines.add(f"{requirement.name}[{','.join(requirement.extras)}]{requirement.specifier}".replace("[]", ""))
    if "serve" in extras:
        lines |= {name + cap for name, (first, cap) in _CAPS.items() if Version(version("ray")) < Version(first)}
    return sorted(lines)


if __name__ == "__main__":
    print(*wanted(sys.argv[1:]), sep="\n")
