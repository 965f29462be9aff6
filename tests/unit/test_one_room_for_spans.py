"""The layout of an encoded span is known in one folder: no other module has the numbers of its fields and offsets."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

import ray_tracing_hooks
from ray_tracing_hooks._formats.encoded_span import encode, tags

PACKAGE = Path(ray_tracing_hooks.__file__).parent
ROOM = PACKAGE / "_formats" / "encoded_span"

OTHERS = {
    "_formats/jaeger.py": "messages of Jaeger",
    "_formats/otlp.py": "export requests around encoded spans, and their answers",
    "skywalking/messages.py": "messages of SkyWalking",
    "exports/perfetto.py": "messages of Perfetto",
    "ingest/converted.py": "export requests around encoded spans, and how compressed files begin",
    "_record/carrier.py": "flags of a carried context",
    "transport/grpc.py": "answers of servers",
    "transport/http.py": "answers of servers",
}
"""What has such numbers for something else, by how its path ends."""

TAGS = {
    tag
    for message in vars(tags).values()
    if isinstance(message, type)
    for name, tag in vars(message).items()
    if name.isupper()
}
OFFSETS = {encode.TRACE_ID.stop, encode.SPAN_ID.start, encode.SPAN_ID.stop, 30, 34, 44}
"""Where the ids and what follows on them stand, also within the payload of a record."""


def numbers_of_layout(source: str) -> list[str]:
    """What in a module looks as if it knew the layout: tags in hexadecimal, alone or in bytes, and slices of spans."""
    found = []
    # Most modules have no such number anywhere, which is quicker to see than what the numbers of the others are in.
    tokens = tokenize.generate_tokens(io.StringIO(source).readline) if re.search(r"0x|\\x", source) else ()
    for token in tokens:
        if token.type == tokenize.NUMBER and re.fullmatch("0x[0-9A-Fa-f]{2}", token.string):
            written = [token.string[2:]]
        elif token.type == tokenize.STRING and re.match("[rR]?[bB]", token.string):
            written = re.findall(r"\\x([0-9A-Fa-f]{2})", token.string)
        else:
            continue
        found += [f"line {token.start[0]}: {token.string}" for number in written if int(number, 16) in TAGS]
    nodes = ast.walk(ast.parse(source)) if re.search(rf"\b({'|'.join(map(str, OFFSETS))})\b", source) else ()
    for node in nodes:
        bounds: list[ast.expr | None] = []
        if isinstance(node, ast.Slice):
            bounds = [node.lower, node.upper]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "slice":
            bounds = list(node.args)
        elif isinstance(node, ast.Subscript):
            bounds = [node.slice]
        if any(isinstance(bound, ast.Constant) and bound.value in OFFSETS for bound in bounds):
            found.append(f"line {getattr(node, 'lineno', '?')}: {ast.unparse(node)}")
    return found


def test_no_other_module_knows_the_layout() -> None:
    """A tag or an offset is used by its name."""
    found = {
        str(path.relative_to(PACKAGE)): numbers
        for path in sorted(PACKAGE.rglob("*.py"))
        if ROOM not in path.parents and (numbers := numbers_of_layout(path.read_text()))
    }
    assert {name: numbers for name, numbers in found.items() if not name.endswith(tuple(OTHERS))} == {}
    assert not [end for end in OTHERS if not any(name.endswith(end) for name in found)], (
        "they need no exception any more"
    )


@pytest.mark.parametrize(
    "source",
    ["tag == 0x4A", 'b"\\x22\\x08" + parent', "payload[4:20]", "span[:28]", "IDS = slice(2, 30)", "span[28]"],
)
def test_such_numbers_are_found(source: str) -> None:
    """As they once stood all over the package."""
    assert numbers_of_layout(source)
