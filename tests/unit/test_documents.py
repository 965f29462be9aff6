"""What the documents name is there, and what they quote is so."""

from __future__ import annotations

import ast
import re
import shlex
from importlib import import_module
from pathlib import Path

import click
import pytest
import reference
from messages import ENTRIES
from prose import problems

from ray_tracing_hooks._cli import main as command
from ray_tracing_hooks._insight.analysis import findings

ROOT = Path(__file__).parents[2]
FOR_CONTRIBUTORS = ["CONTRIBUTING.md", "docs/ARCHITECTURE.md"]
SITE = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [
    str(path.relative_to(ROOT))
    for path in (
        *SITE,
        *(
            file
            for folder in (".", "deploy/kubernetes", "examples", "tests/benchmarks/results")
            for file in (ROOT / folder).glob("*.md")
        ),
    )
]


def without_code(document: str) -> str:
    return re.sub(r"^```.*?^```", "", (ROOT / document).read_text(), flags=re.DOTALL | re.MULTILINE)


def blocks(document: str, *languages: str) -> list[str]:
    """The code of a document in these languages."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)
    return [code for language, code in found if language in languages]


def anchors(document: str) -> list[str]:
    """What links to the document end with: headings, as GitHub makes it of them, and elements with an id."""
    text = without_code(document)
    headings = re.findall(r"^#+ (.*)", text, flags=re.MULTILINE)
    made = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return made + re.findall(r'<a id="(.*?)">', text)


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
    links = re.findall(r"\]\((?!https?:)([^)]+)", without_code(document))
    for link in (*links, *re.findall(r'src(?:set)?="([^"]+)"', without_code(document))):
        name, _, anchor = link.partition("#")
        path = (ROOT / document).parent / name if name else ROOT / document
        assert path.exists(), link
        assert not anchor or anchor in anchors(str(path)), link


def test_the_first_page_leads_to_every_page() -> None:
    """The site has its navigation from there."""
    pages = {
        path
        for path in SITE
        if path.name not in {"index.md", "ARCHITECTURE.md", "GLOSSARY.md"} or path.parent.name == "backends"
    }
    links = re.findall(r"^- \[.*?\]\(([^)]+)\)", (ROOT / "docs/index.md").read_text(), re.MULTILINE)
    assert {ROOT / "docs" / link for link in links} == pages


@pytest.mark.parametrize("document", FOR_CONTRIBUTORS)
def test_every_command_is_in_the_makefile(document: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"`make (\w+)", (ROOT / document).read_text()))
    assert not {command for command in commands - {"help"} if not re.search(rf"^{command}:", makefile, re.MULTILINE)}


@pytest.mark.parametrize("path", sorted(reference.FOLDER.glob("*.md")), ids=lambda path: path.name)
def test_a_reference_page_is_what_the_code_says(path: Path) -> None:
    """After a change of the code: ``make reference``."""
    assert path.read_text() == reference.pages()[path]


def test_every_kind_of_finding_has_its_place() -> None:
    """The report links to it: ``findings.md#KIND``."""
    kinds: set[str] = set()
    for path in Path(findings.__file__).parent.glob("*.py"):
        module = import_module(f"{findings.__name__}.{path.stem}") if path.stem != "__init__" else findings
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding":
                kind = node.args[0]
                kinds.add(str(kind.value if isinstance(kind, ast.Constant) else getattr(module, ast.unparse(kind))))
    assert "bottleneck-actor" in kinds
    found = anchors("docs/reference/findings.md")
    assert {kind: found.count(kind) for kind in kinds} == dict.fromkeys(kinds, 1)


def test_every_message_of_doctor_has_one_place() -> None:
    found = anchors("docs/reference/doctor.md")
    assert sorted(found) == sorted(set(found))
    assert {"no-cluster", "endpoint-tls"} <= set(found)
    assert "| `…`" not in (ROOT / "docs/reference/doctor.md").read_text()


def test_every_message_in_logs_has_its_entry() -> None:
    """``reference.py`` fails where the code logs a message that has none, and where an entry has no message."""
    page = anchors("docs/reference/messages.md")
    assert all(page.count(each) == 1 for each in ENTRIES)
    assert [problem for _, remedy in ENTRIES.values() for problem in problems(remedy)] == []


def test_a_message_without_an_entry_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = reference.logged()
    monkeypatch.setattr(reference, "logged", lambda: {*logged, "a new one: …"})
    with pytest.raises(AssertionError, match="lacks 'a new one"):
        reference.messages()
    monkeypatch.setattr(reference, "logged", lambda: logged - {"the spool folder … is gone"})
    with pytest.raises(AssertionError, match=r"no or several messages for .*spool-gone"):
        reference.messages()


def test_every_page_of_a_back_end_says_how_it_was_tested() -> None:
    """With the versions that the tests install."""
    pages = {path.stem: path.read_text() for path in (ROOT / "docs/backends").glob("*.md")}
    assert all("\n## Tested with\n" in text for name, text in pages.items() if name != "index")
    installs = (ROOT / "pyproject.toml").read_text() + (ROOT / ".ci/beside.py").read_text()
    peers = {
        "rotel==": ("collector", "index"),
        "ddapm-test-agent==": ("datadog", "index"),
        "apache-skywalking==": ("skywalking",),
        "python2sky==": ("skywalking",),
        "skywalking-backend-js@": ("skywalking",),
    }
    for peer, names in peers.items():
        found = re.search(rf'"{re.escape(peer)}([^"]+)"', installs)
        assert found, peer
        assert all(f" {found[1]}" in pages[name] for name in names), peer


def test_both_readmes_fit_on_a_screen_and_have_the_same_code() -> None:
    """But for the comments in it."""
    languages = ("sh", "console", "python")
    english, chinese = (
        [re.sub(r" *# .*", "", block) for block in blocks(name, *languages)]
        for name in ("README.md", "README.zh-CN.md")
    )
    assert english == chinese
    assert all(len((ROOT / name).read_text().splitlines()) <= 150 for name in ("README.md", "README.zh-CN.md"))


@pytest.mark.parametrize(
    ("document", "row", "figures"),
    [
        ("README.md", "Actor calls per second", "rates"),
        ("README.md", "Processor time per actor call", "times"),
        ("README.zh-CN.md", "每秒 actor 调用数", "rates"),
        ("README.zh-CN.md", "每次 actor 调用的 CPU 时间", "times"),
    ],
)
def test_the_figures_of_the_readme_are_those_of_the_benchmark(document: str, row: str, figures: str) -> None:
    """Of many calls of actors at a time: Ray's own hook, a batch processor, and ``local``."""
    results = (ROOT / "tests/benchmarks/results/README.md").read_text()
    heading = {"rates": "## Calls a second", "times": "## Processor time a call, relative"}[figures]
    found = re.search(rf"^{heading}.*?^\| actor calls async \|(.*?)$", results, re.DOTALL | re.MULTILINE)
    shown = re.search(rf"^\| {row}.*?\|(.*)\|$", (ROOT / document).read_text(), re.MULTILINE)
    assert found
    assert shown
    columns = [float(cell.split("(")[0]) for cell in found[1].split("|")[2:6]]
    assert shown[1].split("|") == [f" {columns[at] * 100:.0f}% " for at in (0, 1, 3)]


@pytest.mark.parametrize(
    ("document", "column"), [("README.md", 3), ("README.zh-CN.md", 3), ("docs/explanation/comparison.md", 4)]
)
def test_the_counts_of_the_readme_are_those_of_the_comparison(document: str, column: int) -> None:
    results = (ROOT / "tests/benchmarks/results/README.md").read_text()
    hooks = ("Ray's own hook", "batch processor", "ray-tracing-hooks")
    changed = [int(re.findall(rf"^\| {hook} \|.*?\| (\d+) \|", results, re.MULTILINE)[0]) for hook in hooks]
    ways = re.findall(r"^\w[\w ]*?  +(\d+) / (\d+) +(\d+) / (\d+) +(\d+) / (\d+)$", results, re.MULTILINE)
    assert len(ways) == 28
    losing = [sum(int(way[at]) < int(way[at + 1]) for way in ways) for at in (2, 4, 0)]
    for many, counts in (("126", changed), ("28", losing)):
        row = re.search(rf"^\|[^|]*{many} ?[^|]*\|(.*)\|$", (ROOT / document).read_text(), re.MULTILINE)
        assert row
        cells = [cell.strip() for cell in row[1].split("|")]
        assert [cells[0], cells[1], cells[column - 1]] == [str(count) for count in counts]


@pytest.mark.parametrize(
    ("tutorial", "program"),
    [("slow-job", "slow_job.py"), ("tests", "test_spans.py")],
)
def test_a_tutorial_shows_what_its_program_does(tutorial: str, program: str) -> None:
    text = (ROOT / "examples" / program).read_text()
    found = blocks(f"docs/tutorials/{tutorial}.md", "python")
    assert found
    assert all(block in text for block in found)


def test_bad_english_is_found() -> None:
    assert [problem for _, problem in problems("A colour that it makes spans of.")] != []
    assert list(problems("```sh\nwhat colour is\n```\nA good sentence.")) == []
    assert next(problems(" ".join(["word"] * 26) + "."))[1].startswith("26 words")


@pytest.mark.parametrize(
    "document", [name for name in DOCUMENTS if name.startswith(("docs", "README", "deploy", "examples"))]
)
def test_every_command_that_is_shown_exists(document: str) -> None:
    """With its options, and the programs that are run."""
    lines = "\n".join(blocks(document, "sh", "console")).splitlines()
    for line in lines:
        assert all((ROOT / path).exists() for path in re.findall(r"\bexamples/[\w/.]+", line)), line
        _, found, rest = line.partition("ray-tracing-hooks ")
        if not found or line.startswith((" ", "next:")):
            continue
        words = shlex.split(rest.partition("|")[0], comments=True)
        shown = command.get_command(click.Context(command), words[0])
        assert shown is not None, line
        options = {option for parameter in shown.params for option in parameter.opts} | {"--help"}
        own = words[1 : words.index("program.py")] if "program.py" in words else words[1:]
        assert {word.partition("=")[0] for word in own if word.startswith("-")} <= options, line
