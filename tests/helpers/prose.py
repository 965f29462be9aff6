"""Checks the English of the README and of the site: ``prose.py [FILE ...]``, part of ``make lint``.

A sentence has at most 25 words, and none of the forms below. Code, what comes from code, and headings are not checked.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_WORDS = 25
BRITISH = (
    r"\b(?:licence|colours?|coloured|behaviours?|centre|favour\w*|labelled|modelled|cancelled|cancelling|catalogue|grey|whilst"
    r"|analys(?:e|ed|es|ing)|(?:synchron|recogn|organ|serial|summar|optim|categor|custom|normal|initial|minim|maxim|visual)is\w+)\b"
)
RULES = {
    BRITISH: "use American spelling",
    r"\b(?:that|those) of\b": "repeat the noun",
    r"\bwhat (?!to\b)(?!is wrong)(?!it (?:costs|guarantees)\b)(?![^.]*\?)": "use a noun for a clause with `what`",
    r"\bas above\b|\babove mentioned\b": "name it",
    r"\b(?:is|are|was|were) told\b": "who says it?",
    r"\bby way of\b|\bof which the\b|\bin the course of\b": "say it in plain words",
    r"\bmakes? (?:no |its |own )*spans?\b": "spans are recorded",
    r", also\b": "use `too`, `including`, or a new sentence",
    r"\bcomma list\b": "comma-separated list",
    r"\b(?:by|over) (?:OTLP|gRPC|HTTP)'s\b|\bby OTLP\b": "over OTLP",
    r"\d %": "no space before %",
    r"\bbackends?\b": "back end",
    r"\butili[sz]es?\b|\bsimply\b|\bjust\b|\beasily\b|\bvery\b(?! (?:many|first))": "leave it out",
}
_GENERATED = re.compile(r"^<!-- (\w+) -->\n.*?^<!-- \1 -->$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^[ ]*```.*?^[ ]*```$", re.MULTILINE | re.DOTALL)


def problems(text: str) -> Iterator[tuple[int, str]]:
    """What is wrong with a document, by line."""
    for hidden in (_GENERATED, _CODE):
        text = hidden.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("#", "!", "<", "  <")):
            continue
        plain = re.sub(r"`[^`]*`", "X", line)
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        plain = re.sub(r"[*_>]", "", plain)
        for cell in plain.split("|") if plain.lstrip().startswith("|") else [plain]:
            for rule, advice in RULES.items():
                for found in re.finditer(rule, cell, re.IGNORECASE):
                    yield number, f"{found[0]!r}: {advice}"
            for sentence in re.split(r"(?<=[.?!:])\s+", cell.strip()):
                words = len(re.findall(r"[\w'-]+", sentence))
                if words > MOST_WORDS:
                    yield number, f"{words} words: {sentence[:60]}..."


def documents() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "examples" / "README.md",
        *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.stem.islower()),
    ]


if __name__ == "__main__":
    found = [
        f"{path}:{line}: {problem}"
        for path in map(Path, sys.argv[1:] or documents())
        for line, problem in problems(path.read_text(encoding="utf-8"))
    ]
    print(*found, sep="\n")
    sys.exit(bool(found))
