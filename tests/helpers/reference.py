"""The tables of the reference pages, made from those in the code.

``make reference`` writes them into ``docs/reference/*.md``, between comments of one name.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import name_tables
from messages import ENTRIES

from ray_tracing_hooks._cli import main as command
from ray_tracing_hooks._insight.analysis.findings import FINDERS, data
from ray_tracing_hooks._insight.store.columns import COLUMNS
from ray_tracing_hooks._ops.checks.messages import PROBLEMS, WARNINGS
from ray_tracing_hooks._ops.hooks import HOOKS
from ray_tracing_hooks._settings import otel, table

FOLDER = Path(__file__).parents[2] / "docs/reference"
PACKAGE = Path(__file__).parents[2] / "ray_tracing_hooks"
_LOGGING = {"report": 0, "warning": 0, "warn_once": 0, "count": 0, "hint": 1}
"""Functions that log a message, and which argument it is."""

MODULES = (*(hook.split(":")[0].split(".")[1] for hook in HOOKS[1:]), "jobs", "serve", "rl", "testing", "names")
_DESCRIBED = (*FINDERS, data.skewed_blocks)
"""Also what a finder makes in place of its own finding, with a text of its own."""

_SECTIONS = {
    "failures": "Failures",
    "calls": "Calls and accelerators",
    "actors": "Actors",
    "driver": "Drivers",
    "order": "The order of waiting",
    "waiting": "The cluster",
    "serve": "Ray Serve",
    "serve_calls": "Calls between deployments",
    "llm": "LLM engines",
    "rollouts": "Rollouts of reinforcement learning",
    "data": "Ray Data",
    "train_tune": "Ray Train and Ray Tune",
}
_IN_SECTION = {"tiny_tasks": "driver", "large_arguments": "driver", "sizes": "waiting", "resources": "waiting"}
"""The section of finders, and of modules, that is not that of their module."""


@functools.cache
def pages() -> dict[Path, str]:
    """The text of each page, with its tables as they should be."""
    tables: dict[str, Callable[[], str]] = {
        "settings": table.markdown_table,
        "standard": otel.markdown_table,
        "names": name_tables.markdown_table,
        "metrics": name_tables.metrics_table,
        "delivery": name_tables.delivery_metrics_table,
        "findings": findings,
        "checks": checks,
        "messages": messages,
        "columns": columns,
        "commands": lambda: "\n".join(commands(command, "ray-tracing-hooks")),
        "python": lambda: "\n".join(module for name in MODULES for module in python(name)),
    }
    found = {}
    for path in FOLDER.glob("*.md"):
        parts = re.split(r"^<!-- (\w+) -->\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for at in range(1, len(parts), 4):
            assert parts[at] == parts[at + 2], f"{path.name}: {parts[at]} has no end"
            parts[at + 1] = tables.pop(parts[at])().strip() + "\n"
            parts[at] = parts[at + 2] = f"<!-- {parts[at]} -->\n"
        found[path] = "".join(parts)
    assert not tables, f"no page has {list(tables)}"
    return found


def columns() -> str:
    """The columns of a store of runs."""
    types = {
        "timestamp": "TIMESTAMP_NS",
        "string": "VARCHAR",
        "int32": "INTEGER",
        "int64": "BIGINT",
        "boolean": "BOOLEAN",
    }
    rows = [f"| `{each.name}` | {types[each.kind]} | {each.meaning} |" for each in COLUMNS]
    return "\n".join(["| column | type in DuckDB | meaning |", "| --- | --- | --- |", *rows])


def findings() -> str:
    """What each finder of the analysis measures, in its own words, by the file that it is in.

    Links of the report end with the kind of a finding, which is an anchor: the heading, or an element before it.
    """
    lines = []
    anchors = {finder.__name__.replace("_", "-") for finder in _DESCRIBED}
    for module, section in _SECTIONS.items():
        lines.append(f"\n## {section}\n")
        for finder in _DESCRIBED:
            if _section(finder) == module:
                kinds = sorted(_kinds(finder))
                new = [kind for kind in kinds if kind not in anchors]
                anchors.update(new)
                lines += ["".join(map(_anchor, new)), ""] if new else []
                what, _, facts = inspect.cleandoc(finder.__doc__ or "").partition("\n\n")
                lines.append(f"### {_heading(finder)}\n\n{_plain(what)}\n")
                lines += [f"- {_plain(fact)}" for fact in re.split(r"\n(?=[A-Z][\w ]+:)", facts) if fact]
                lines += [f"- In JSON: {', '.join(_named(kind, finder) for kind in kinds)}", ""] if kinds else [""]
    return "\n".join(lines)


def _section(finder: Any) -> str:
    """The key of a finder's section. Raises KeyError if it has none."""
    its = str(finder.__module__).rpartition(".")[2]
    section = _IN_SECTION.get(finder.__name__, _IN_SECTION.get(its, its))
    if section not in _SECTIONS:
        raise KeyError(f"{finder.__name__}: expected the section of {section} in _SECTIONS or _IN_SECTION")
    return section


def _heading(finder: Any) -> str:
    return str(finder.__name__.replace("_", " ").capitalize())


def _named(kind: str, finder: Any) -> str:
    """A kind, with links to the others that make findings of it."""
    others = [each for each in _DESCRIBED if each is not finder and kind in _kinds(each)]
    links = [f"[{_heading(each)}](#{each.__name__.replace('_', '-')})" for each in others]
    return f"`{kind}`" + (f" (shared with {', '.join(links)})" if links else "")


def _anchor(name: str) -> str:
    """What a link to ``#name`` leads to, in the repository and on the site."""
    return f'<a id="{name}"></a>'


@functools.cache
def _kinds(finder: Any) -> set[str]:
    """The kinds of the findings that are made in a function, or in one of its module that it names and is no finder."""
    module = inspect.getmodule(finder)
    others = {each.__name__ for each in _DESCRIBED}
    functions = {
        node.name: node
        for node in ast.parse(inspect.getsource(finder if module is None else module)).body
        if isinstance(node, ast.FunctionDef) and (node.name == finder.__name__ or node.name not in others)
    }
    found: set[str] = set()
    seen: set[str] = set()
    pending: list[str] = [finder.__name__]
    while pending:
        seen.add(name := pending.pop())
        for node in ast.walk(functions[name]):
            if isinstance(node, ast.Name) and node.id in functions.keys() - seen:
                pending.append(node.id)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                kind = node.args[0]
                found.add(str(kind.value if isinstance(kind, ast.Constant) else finder.__globals__[ast.unparse(kind)]))
    return found


def checks() -> str:
    """What the checks of `doctor` find: ids, severities, and texts with an ellipsis for what differs."""
    rows = ["| id | severity | message | advice |", "| --- | --- | --- | --- |"]
    for severity, found in (("problem", PROBLEMS), ("warning", WARNINGS)):
        for id_, texts in found.items():
            shown = (re.sub(r"\{.*?\}", "…", text) for text in texts)
            rows.append("| " + " | ".join((f"{_anchor(id_)}`{id_}`", severity, *shown)).replace("|  |", "| |") + " |")
    return "\n".join(rows)


def _assigned(statements: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """The variables that assignments give values to."""
    for node in statements:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                yield from zip(map(ast.unparse, names), values, strict=True)
            case _:
                pass


def messages() -> str:
    """What hooks, workers and shippers log, with ids, causes and remedies. The longest beginning that fits counts."""
    texts: dict[str, list[str]] = {each: [] for each in ENTRIES}
    for text in sorted(logged()):
        fitting = [each for each, (beginning, _) in ENTRIES.items() if text.startswith(beginning)]
        assert fitting, f"tests/helpers/messages.py lacks {text!r}"
        texts[max(fitting, key=lambda each: len(ENTRIES[each][0]))].append(text)
    wrong = {each: found for each, found in texts.items() if len(found) != 1}
    assert not wrong, f"tests/helpers/messages.py has no or several messages for {wrong}"
    return "\n\n".join(f"## {each}\n\n> {texts[each][0]}\n\n{remedy}" for each, (_, remedy) in ENTRIES.items())


@functools.cache
def logged() -> set[str]:
    """The messages that the code logs, with an ellipsis for what differs.

    Without texts that come from elsewhere, such as problems of settings and of servers.
    """
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] in {"_cli", "_insight", "_ops"}:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            places = [(each.args, _LOGGING.get(ast.unparse(each.func).rpartition(".")[2])) for each in calls]
            logged_ones = [args[place] for args, place in places if place is not None and len(args) > place]
            if logged_ones:
                scope = Scope([*_assigned(tree.body), *_assigned(ast.walk(function))])
                found.update(text for each in logged_ones for text in scope.texts(each))
    found = {re.sub(r"(?<!\.)\.$", "", _shortened(re.sub(r"%[a-z]|\{count\}", "…", text))) for text in found}
    return {text for text in found if re.search(r"\w{3}", text.removeprefix("ray_tracing_hooks"))}


class Scope:
    """What variables of a function and its module may be."""

    def __init__(self, values: list[tuple[str, ast.expr]]) -> None:
        self._values = values

    def texts(self, node: ast.expr) -> list[str]:
        """The texts that an expression may have."""
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.Name(id=name) if any(name == each for each, _ in self._values):
                rest = Scope([pair for pair in self._values if pair[0] != name])
                return [text for each, value in self._values if each == name for text in rest.texts(value)]
            case ast.IfExp(body=one, orelse=other):
                return self.texts(one) + self.texts(other)
            case ast.BinOp(left=one, op=ast.Add(), right=other):
                return [_shortened(f"{each}{rest}") for each in self.texts(one) for rest in self.texts(other)]
            case ast.JoinedStr(values=parts):
                return [_shortened("".join(map(self._part, parts)))]
            case _:
                return ["…"]

    def _part(self, part: ast.expr) -> str:
        texts = self.texts(part.value if isinstance(part, ast.FormattedValue) else part)
        return texts[0] if len(texts) == 1 else "…"


def _shortened(text: str) -> str:
    return re.sub(r"(…\s?)+…", "…", text)


def commands(group: click.Command, name: str) -> Iterator[str]:
    """The help of each command below this one."""
    with click.Context(group, info_name=name, terminal_width=100, max_content_width=100) as context:
        for below in group.list_commands(context) if isinstance(group, click.Group) else []:
            found = group.get_command(context, below) if isinstance(group, click.Group) else None
            assert found is not None
            with click.Context(found, parent=context, info_name=below, **command.context_settings) as inner:
                inner.terminal_width = 100
                shown = "\n".join(line.rstrip() for line in found.get_help(inner).splitlines())
                yield f"## {below}\n\n```text\n{shown}\n```\n"


def python(name: str) -> Iterator[str]:
    """The module, and what it offers."""
    module = import_module(f"ray_tracing_hooks.{name}")
    yield f"## ray_tracing_hooks.{name}\n\n{_document(module)}\n"
    for attribute in module.__all__:
        value = getattr(module, attribute)
        if inspect.isclass(value):
            yield f"### {attribute}\n\n{_document(value)}\n"
            for member, method in vars(value).items():
                if not member.startswith("_") and (inspect.isfunction(method) or isinstance(method, property)):
                    shown = f"{member}{_signature(method)}" if inspect.isfunction(method) else member
                    yield f"- `{shown}`: {_plain(inspect.getdoc(method) or '')}"
            yield ""
        elif inspect.isfunction(value):
            yield f"### {attribute}{_signature(value)}\n\n{_document(value)}\n"


def _signature(function: Any) -> str:
    return re.sub(r"'|self, |self", "", str(inspect.signature(function)))


def _document(value: Any) -> str:
    """A docstring as Markdown: its indented blocks are code."""
    blocks = []
    for block in re.split(r"\n\n(?! )", inspect.getdoc(value) or ""):
        text, *code = re.split(r"\n\n(?= {4})", block, maxsplit=1)
        if text.startswith("    "):
            text, code = "", [text]
        blocks += [re.sub(r":$", ":", _plain(text))] if text else []
        blocks += [f"```text\n{textwrap.dedent(each).strip()}\n```" for each in code]
    return "\n\n".join(blocks)


def _plain(text: str) -> str:
    """Markdown of a docstring's paragraph."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", " ".join(text.split())).replace("``", "`")
    return re.sub(r"::$", ":", text)


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
