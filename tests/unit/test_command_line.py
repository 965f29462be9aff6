"""The command line as a whole: what each command says of itself, and what a shell completes."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ray_tracing_hooks._cli import main

COMMANDS = main.list_commands(click.Context(main))


HEADINGS = ["Record:", "Look:", "Cluster:", "Delivery:", "Set-up:"]


def shown(*words: str) -> str:
    """What it prints in a terminal of 80 columns."""
    return CliRunner().invoke(main, list(words), terminal_width=80).output


def test_the_list_of_commands_is_cut_nowhere() -> None:
    """It has groups, and each command has a whole sentence."""
    lines = shown("--help").splitlines()
    sentences = [line for line in lines if line[2:].partition(" ")[0] in COMMANDS]
    assert len(sentences) == len(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in sentences)
    assert [line for line in lines if line in HEADINGS] == HEADINGS


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)], ids=lambda words: words[0])
def test_help_is_for_people(words: list[str]) -> None:
    """It has no notation of programs, such as ranges and types, and no text that is wider than the terminal."""
    text = shown(*words)
    assert not re.search(r"RANGE|TEXT|INTEGER|FLOAT|x>=|<=x|\d\.0\b(?!\.)", text)
    options = text.partition("Options:\n")[2].partition("\n\n")[0]
    assert [line for line in options.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("option", ["--json", "--address", "--timeout", "--trace", "--job", "--all", "--open"])
def test_an_option_is_the_same_in_every_command(option: str) -> None:
    """It has one name for its value, and except for what can be opened or has several runs, one sentence."""
    found = [
        (each.name, each.metavar, each.type.name, tuple(each.opts), (each.help or "").partition(".")[0])
        for name in COMMANDS
        if (command := main.get_command(click.Context(main), name))
        for each in command.params
        if isinstance(each, click.Option) and option in each.opts
    ]
    assert len(found) > 2
    length = 4 if option in {"--all", "--open", "--job"} else 5
    assert len({each[:length] for each in found}) == 1


def test_help_imports_no_command() -> None:
    """Some would take longer than people wait for it; so would the completion of their names."""
    program = (
        "import sys; from ray_tracing_hooks._cli import main; main(['--help'], standalone_mode=False); "
        "print(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loaded = set(re.findall(r"'ray_tracing_hooks\._cli\.(\w+)'", done))
    assert loaded == {"options"}
    assert "numpy" not in done


def test_the_command_has_a_short_name() -> None:
    points = {point.name: point.value for point in importlib.metadata.distribution("ray-tracing-hooks").entry_points}
    assert points["rth"] == points["ray-tracing-hooks"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_examples_that_it_understands(name: str) -> None:
    """Each is a line of its own, with options that there are."""
    examples = [line.strip() for line in shown(name, "--help").partition("Examples:\n")[2].splitlines()]
    assert len(examples) >= 2
    command = main.get_command(click.Context(main), name)
    assert command is not None
    options = {option for each in command.params for option in each.opts if isinstance(each, click.Option)}
    for example in examples:
        words = example.split()
        after = words[words.index("ray-tracing-hooks") + 1 :]
        assert after[0] == name
        own = after[1 : next((at for at, word in enumerate(after) if word.endswith(".py")), None)]
        assert {word for word in own if word.startswith("-")} <= options, example


def test_output_that_cannot_be_written_is_an_error() -> None:
    command = [sys.executable, "-m", "ray_tracing_hooks", "config"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "Error: the output cannot be written: No space left on device\n")


def test_a_closed_output_is_as_good_as_none() -> None:
    closed = f"exec {shlex.quote(sys.executable)} -m ray_tracing_hooks config >&-"
    done = subprocess.run(["sh", "-c", closed], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell])
    assert script.exit_code == 0
    for name in ("_RAY_TRACING_HOOKS", "_RTH"):
        assert f"{name}_COMPLETE={shell}_complete" in script.output
    wrong = CliRunner().invoke(main, ["completion"], env={"SHELL": "/bin/tcsh"})
    assert wrong.exit_code == 2
    assert "name the shell: one of bash, zsh, fish" in wrong.output


def test_bash_completes_commands_and_options() -> None:
    """What the script calls, as bash calls it."""

    def completed(*words: str) -> list[str]:
        variables = {
            "_RAY_TRACING_HOOKS_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("ray-tracing-hooks", *words)),
            "COMP_CWORD": str(len(words)),
        }
        return CliRunner(env=variables).invoke(main, prog_name="ray-tracing-hooks").stdout.split()

    assert completed("su") == ["plain,summary"]
    assert completed("view", "--o") == ["plain,--output", "plain,--open"]
    assert completed("export", "--format", "perf") == ["plain,perfetto"]


WAITING = [
    *(["enable", "--timeout"], ["disable", "--timeout"], ["configure", "exclude=a", "--timeout"]),
    *(["status", "--timeout"], ["doctor", "--timeout"], ["collect", "--timeout"], ["states", "--timeout"]),
    *(["replay", "/nowhere", "--retry-for"], ["status", "--watch", "--interval"]),
]


@pytest.mark.parametrize("words", WAITING, ids=lambda words: f"{words[0]} {words[-1]}")
def test_a_time_limit_is_a_number_of_seconds(words: list[str]) -> None:
    """Anything else is wrong usage, before something is asked or sent."""
    for given in ("nan", "inf", "1e300", "-1", "soon", ""):
        done = CliRunner().invoke(main, [*words, given])
        assert done.exit_code == 2, given
        said = " ".join(done.output.split())
        assert f"Invalid value for '{words[-1]}': '{given}' is not valid: expected a number of seconds from" in said


def test_a_block_for_a_bug_report_has_no_secret(tmp_path: Path) -> None:
    """It can be pasted into a page as it is, and needs no cluster."""
    canary = "c4n4ry"
    variables = {
        "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={canary}",
        "RAY_TRACING_EXPORTERS": "otlp",
        "RAY_TMPDIR": str(tmp_path),
    }
    done = CliRunner(env=variables).invoke(main, ["doctor", "--report", "--no-test-span"])
    first, *_, last = done.stdout.splitlines()
    assert (first, last) == ("```text", "```")
    assert "  OTEL_EXPORTER_OTLP_HEADERS=api-key=********" in done.stdout
    assert "warning no-cluster: no Ray cluster started by `ray start` runs on this machine" in done.stdout
    assert canary not in done.output
