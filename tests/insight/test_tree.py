"""``ray-tracing-hooks tree``: what a person, and a program, gets to see of recorded traces."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from made_spans import line
from terminal import STYLE, in_terminal

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._cli.options import parse_duration
from ray_tracing_hooks._insight.analysis.wording import duration
from ray_tracing_hooks._insight.views.exports.otlp import _attributes
from ray_tracing_hooks._safety.guard import safe

SECOND = 10**9
MS = 10**6
INTERNAL, SERVER, PRODUCER, CONSUMER = 1, 2, 4, 5
DRIVER = {
    "host.name": "head.example.com",
    "process.pid": "100",
    "ray.node.id": "aaaaaaaabb",
    "ray.worker.process_type": "driver",
}
WORKER = {"host.name": "head.example.com", "process.pid": "200", "ray.node.id": "aaaaaaaabb"}


class Folder:
    """A folder of spans under construction; ids are given out in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._numbers = itertools.count(1)
        self.trace = ""
        self.new_trace()

    def new_trace(self) -> None:
        self.trace = f"{next(self._numbers):x}".ljust(32, "0")

    def span(
        self,
        name: str,
        parent: str = "",
        *,
        start: float = 0,
        took: float = 1 * MS,
        kind: int = INTERNAL,
        where: dict[str, str] = WORKER,
        error: str = "",
        exception: str = "",
        attributes: dict[str, Any] | None = None,
        links: Sequence[dict[str, str]] = (),
    ) -> str:
        """Write a span; times in nanoseconds, ``start`` after a fixed moment. Returns its id."""
        begin = 1_700_000_000 * SECOND + int(start)
        span_id = f"{next(self._numbers):016x}"
        described: dict[str, Any] = {
            "traceId": self.trace,
            "spanId": span_id,
            "parentSpanId": parent,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(begin),
            "endTimeUnixNano": str(begin + int(took)),
            "attributes": _attributes(attributes or {}),
        }
        if links:
            described["links"] = links
        if error:
            described["status"] = {"code": 2, "message": error}
        if exception:
            message = {"key": "exception.message", "value": {"stringValue": exception}}
            described["events"] = [{"timeUnixNano": str(begin), "name": "exception", "attributes": [message]}]
        with open(self.path / "spans.jsonl", "a") as file:
            file.write(line(described, resource=where))
        return span_id

    def call(
        self, function: str, parent: str = "", *, start: float = 0, queued: float = MS, took: float = MS, **more: Any
    ) -> str:
        """A submission of 100 us in the driver and its execution; returns the execution's id."""
        submit = self.span(f"{function} ray.remote", parent, start=start, took=0.1 * MS, kind=PRODUCER, where=DRIVER)
        begin = start + 0.1 * MS + queued
        return self.span(f"{function} ray.remote_worker", submit, start=begin, took=took, kind=CONSUMER, **more)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["tree", *map(str, arguments)], prog_name="ray-tracing-hooks")


def lines(*arguments: object) -> list[str]:
    """The printed lines below the titles of the columns and without headings and empty lines."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return [line for line in result.stdout.splitlines()[1:] if line and not line.startswith("trace ")]


def left(line: str) -> str:
    """The guide, name and marks of a line."""
    return line if "✗" in line else re.split(r"(?<=\S)  ", line)[0]


def test_a_call_is_one_line_with_its_three_times(folder: Folder) -> None:
    """Execution, time in the queue and submission stand in columns of their own, and where it ran."""
    root = folder.span("train.py", took=2 * SECOND, where=DRIVER)
    folder.call("data.load", root, queued=20 * MS, took=300 * MS)
    assert run(folder.path).stdout.splitlines()[0].split() == ["TIME", "QUEUED", "SUBMIT", "WHERE"]
    assert [line.split() for line in lines(folder.path)] == [
        ["train.py", "2.00", "s", "head:100", "driver"],
        ["└─", "data.load", "300", "ms", "20.0", "ms", "100", "us", "head:200"],
    ]


def test_a_trace_that_began_after_the_end_of_its_context_says_where_that_is(folder: Folder) -> None:
    """On the line below its first span, which may be a call."""
    link = {"traceId": "ab" * 16, "spanId": "cd" * 8}
    submit = folder.span("poll ray.remote", kind=PRODUCER, attributes={"ray.after_end": 12.5}, links=[link])
    folder.span("poll ray.remote_worker", submit, start=MS, kind=CONSUMER)
    assert [left(line) for line in lines(folder.path)] == [
        "poll",
        f"   begun 12.5 s after the end of span {'cd' * 8} of trace {'ab' * 16}",
    ]


def test_raw_shows_both_spans_of_a_call(folder: Folder) -> None:
    """With --raw nothing is put together."""
    folder.call("data.load")
    assert [left(line) for line in lines(folder.path, "--raw")] == [
        "data.load ray.remote",
        "└─ data.load ray.remote_worker",
    ]


def test_a_call_of_an_actor_whose_class_is_in_a_function_is_one_line(folder: Folder) -> None:
    """In Ray's own tracing, its caller names it with the function, and its worker without."""
    submit = folder.span("make.<locals>.Counter.add ray.remote", kind=PRODUCER)
    folder.span("Counter.add ray.remote_worker", submit, kind=CONSUMER)
    other = folder.span("make.<locals>.Counter.add ray.remote", start=MS, kind=PRODUCER)
    folder.span("Counter.get ray.remote_worker", other, start=MS, kind=CONSUMER)
    assert [left(line) for line in lines(folder.path)] == [
        "Counter.add",
        "make.<locals>.Counter.add ray.remote",
        "└─ Counter.get ray.remote_worker",
    ]


def test_a_retried_call_shows_each_attempt(folder: Folder) -> None:
    """A submission with two executions is not one line: the attempts would be mistaken for calls."""
    submit = folder.span("f ray.remote", kind=PRODUCER)
    folder.span("f ray.remote_worker", submit, kind=CONSUMER, error="ValueError: 1")
    for attempt in (1, 2):
        retry = {"ray.attempt": attempt}
        folder.span("f ray.remote_worker", submit, kind=CONSUMER, start=attempt * MS, attributes=retry)
    folder.span("A.__init__ ray.remote_worker", kind=CONSUMER, start=9 * MS, attributes={"ray.attempt": 1})
    assert [left(line) for line in lines(folder.path)] == [
        "f ray.remote",
        "├─ f ray.remote_worker",
        "│     ✗ ValueError: 1",
        "├─ f ray.remote_worker [retry 1]",
        "└─ f ray.remote_worker [retry 2]",
        "A.__init__ ray.remote_worker [restart 1]",
    ]


def test_a_call_that_was_never_begun_says_so(folder: Folder) -> None:
    """Not one that was refused, nor one whose execution is only not among the spans that were chosen."""
    root = folder.span("root", where=DRIVER)
    folder.span("f ray.remote", root, kind=PRODUCER)
    folder.span("f ray.remote", root, kind=PRODUCER, error="ValueError: no such option")
    folder.call("g", root)
    folder.span("published ray", root, kind=PRODUCER)
    assert [left(line) for line in lines(folder.path)] == [
        "root",
        "├─ f ray.remote [no execution]",
        "├─ f ray.remote",
        "│     ✗ ValueError: no such option",
        "├─ g",
        "└─ published ray",
    ]
    assert [left(line) for line in lines(folder.path, "--name", "g*remote")][1:] == ["└─ g ray.remote"]


def test_equal_siblings_are_one_line(folder: Folder) -> None:
    """Same name, outcome and children: one line with the number, the median and both extremes, and so below it."""
    root = folder.span("root")
    for number in range(300):
        execution = folder.call("f", root, start=number * MS, took=(1 + number) * MS)
        folder.span("inner", execution)
    folder.call("g", root, start=SECOND)
    _, f, inner, g = lines(folder.path)
    assert f.split()[:12] == ["├─", "f", "x300", "150", "ms", "1.00", "ms", "..", "300", "ms", "1.00", "ms"]
    assert inner.split()[:4] == ["│", "└─", "inner", "x300"]
    assert g.split()[:2] == ["└─", "g"]
    assert len(lines(folder.path, "--no-collapse")) == 602


def test_siblings_that_differ_are_told_apart(folder: Folder) -> None:
    """A failed one, and one with other children, stands beside the equal ones."""
    root = folder.span("root")
    for _ in range(3):
        folder.call("f", root)
    folder.call("f", root, start=2, error="KeyError: 'x'")
    folder.span("inner", folder.call("f", root, start=3))
    assert [left(line) for line in lines(folder.path)] == [
        "root",
        "├─ f x3",
        "├─ f",
        "│     ✗ KeyError: 'x'",
        "└─ f",
        "   └─ inner",
    ]


def test_the_phases_of_a_generation_are_below_it_unless_they_have_spans(folder: Folder) -> None:
    told = {
        "gen_ai.latency.time_in_queue": 0.25,
        "gen_ai.latency.time_in_model_prefill": 0.5,
        "gen_ai.latency.time_in_model_decode": 1.0,
    }
    root = folder.span("work", took=9 * SECOND)
    for number in range(3):
        folder.span("chat tiny", root, took=2 * SECOND, attributes={**told, "gen_ai.latency.time_in_queue": number / 4})
    above = folder.span("chat other", root, start=SECOND, took=2 * SECOND, attributes=told)
    folder.span("queue", above, start=SECOND, took=SECOND / 4)
    assert [line.strip("│├└─ ").partition("  ")[0] for line in lines(folder.path)] == [
        "work",
        "chat tiny x3",
        "queue 250 ms, prefill 500 ms, decode 1.00 s",
        "chat other",
        "queue",
    ]


def test_errors_show_type_and_message(folder: Folder) -> None:
    """The type is added where the message does not begin with it; several messages are counted."""
    root = folder.span("root")
    folder.span("a", root, error="bad row", attributes={"error.type": "app.RowError"})
    folder.span("b", root, start=1, error="RowError: bad row", attributes={"error.type": "app.RowError"})
    folder.span("c", root, start=2, error="one")
    folder.span("c", root, start=3, error="two")
    folder.span("d", root, start=4, error="ray::f() (pid=1)\n  File x\nValueError: deep\n")
    folder.span("e", root, start=5, error="\x1b[36mray::g()\x1b[39m (pid=1)\n  File x\nKeyError: 'deeper'\n")
    advice = "Failed to apply UDF transform after 1/1 attempts (total backoff 0.0s).\nTo change retry attempts, ..."
    folder.span("f", root, start=6, error=f"bad file\n{advice}", attributes={"error.type": "OSError"})
    folder.span("g", root, start=7, error=advice, attributes={"error.type": "OSError"})
    folder.span("h", root, start=8, error=repr(f"name\n{advice}"), attributes={"error.type": "KeyError"})
    printed = "\n".join(lines(folder.path))
    assert "✗ app.RowError: bad row\n" in printed
    assert "✗ RowError: bad row\n" in printed
    assert "✗ one (and 1 other message)\n" in printed
    assert "✗ ValueError: deep" in printed
    assert "✗ KeyError: 'deeper'" in printed
    # Without what Ray Data appends.
    for text in ("OSError: bad file", "OSError", "KeyError: 'name'"):
        assert f"✗ {text}\n" in f"{printed}\n"


def test_the_error_of_a_caller_of_ray_data_is_that_of_the_users_function(folder: Folder) -> None:
    """Ray's error has it in its text alone, which ends with advice."""
    remote = (
        "\x1b[36mray::Map(bad)()\x1b[39m (pid=1)\n  File x\n    raise\napp.RowError: bad row 350\nand more\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "\x1b[36mray::Map(bad)()\x1b[39m (pid=1)\nray.exceptions.UserCodeException: UDF failed\nTo change retries"
    )
    of_ray = {"error.type": "ray.exceptions.RayTaskError(UserCodeException)"}
    folder.span("job.py ray.driver", error="RayTaskError(UserCodeException)", exception=remote, attributes=of_ray)
    folder.span("user", start=1, error=remote, attributes=of_ray)
    folder.span("other", start=2, error="UDF failed", attributes=of_ray)
    errors = [line.strip() for line in lines(folder.path) if "✗" in line]
    assert errors == [*["✗ app.RowError: bad row 350"] * 2, f"✗ {of_ray['error.type']}: UDF failed"]


def test_a_span_of_a_dead_process_is_marked(folder: Folder) -> None:
    """The mark, the reason, and a note that some were cut off."""
    folder.call("f", error="worker died", attributes={"ray.end_estimated": True, "error.type": "worker_died"})
    first, second = lines(folder.path)
    assert first.startswith("f [lost]  ")
    assert second == "   ✗ worker died"
    assert run(folder.path, "--all").stderr == "note: 1 span interrupted by the death of its process\n"


def test_a_process_that_ended_in_good_order_has_its_cause(folder: Folder) -> None:
    """As where it got a SIGTERM: the exception says the exit code alone."""
    cause = "worker died: The process receives a SIGTERM."
    folder.call("f", error=cause, exception="1", attributes={"error.type": "worker_died"})
    assert lines(folder.path)[1] == f"   ✗ {cause}"


def test_a_task_that_ray_data_stopped_is_no_error(folder: Folder) -> None:
    """Whether its function was interrupted or its worker was killed; a cancelled call of the program is one."""
    cancelled = {"error.type": "ray.exceptions.TaskCancelledError"}
    of_operator = cancelled | {"ray.data.operator": "Map"}
    folder.call("Map", error="KeyboardInterrupt", attributes=of_operator)
    folder.new_trace()
    folder.call("Map", error="worker died: force ray.cancel", attributes=of_operator | {"ray.end_estimated": True})
    assert [left(line) for line in lines(folder.path, "--all")] == ["Map [stopped]", "Map [stopped]"]
    assert "error" not in run(folder.path, "--all").stdout
    assert run(folder.path, "--errors").stdout == ""
    assert [trace["errors"] for trace in json.loads(run(folder.path, "--all", "--json").stdout)] == [0, 0]
    folder.new_trace()
    folder.call("f", error="KeyboardInterrupt", attributes=cancelled)
    assert [left(line) for line in lines(folder.path, "--all", "--errors")] == [
        "f",
        "   ✗ ray.exceptions.TaskCancelledError: KeyboardInterrupt",
    ]


def test_a_span_that_was_never_ended_is_no_error_and_took_no_time(folder: Folder) -> None:
    """Its duration is unknown, so it is not grouped with siblings that have ended."""
    root = folder.span("root")
    for number in range(3):
        folder.span("s", root, start=number, attributes={"ray.never_ended": True} if number else {})
    _, ended, never = lines(folder.path)
    assert ended.split()[1] == "s"
    assert ended.split()[2][0].isdigit()
    assert "s x2 [never ended]" in never
    assert not re.search(r"\] +\d", never)
    assert run(folder.path).stderr == ""


def test_where_tells_nodes_and_actors_apart(folder: Folder) -> None:
    """Two nodes on one host are distinguished by their ids, actors by class and id; many places are counted."""
    root = folder.span("root", where=DRIVER)
    actor = {"ray.actor_class": "app.Counter", "ray.actor_id": "0123456789abcdef"}
    folder.call("Counter.add", root, attributes=actor)
    for pid in ("300", "301"):
        folder.call(
            "f", root, start=1, where={"host.name": "head.example.com", "process.pid": pid, "ray.node.id": "ccccccccdd"}
        )
    first, second, third = lines(folder.path)
    assert first.endswith("  head/aaaaaaaa:100 driver")
    assert second.endswith("  head/aaaaaaaa:200 Counter#01234567")
    assert third.endswith("  2 processes")


def test_a_name_chooses_spans_and_keeps_what_is_above(folder: Folder) -> None:
    """Part of the name, or a pattern that fits the span's name or the function's."""
    root = folder.span("train.py")
    folder.span("decode", folder.call("data.load", root))
    folder.call("data.store", root)
    assert [left(line) for line in lines(folder.path, "--name", "deco")] == [
        "train.py",
        "└─ data.load",
        "   └─ decode",
    ]
    assert len(lines(folder.path, "--name", "data.s*e")) == 2
    assert len(lines(folder.path, "--name", "*.remote_worker")) == 3
    assert "   4 of 6 spans" in run(folder.path, "--name", "deco").stdout


def test_errors_and_long_spans_can_be_chosen(folder: Folder) -> None:
    """Only what failed, only what took long, or both."""
    root = folder.span("root", took=5 * MS)
    folder.span("slow", root, took=20 * MS)
    folder.span("bad", root, start=1, error="x")
    folder.span("slow and bad", root, start=2, took=20 * MS, error="x")
    folder.new_trace()
    folder.span("other")
    assert [left(line) for line in lines(folder.path, "--errors") if "✗" not in line] == [
        "root",
        "├─ bad",
        "└─ slow and bad",
    ]
    assert [left(line) for line in lines(folder.path, "--min-duration", "20ms") if "✗" not in line] == [
        "root",
        "├─ slow",
        "└─ slow and bad",
    ]
    assert len(lines(folder.path, "--errors", "--min-duration", "20ms")) == 3


def test_nothing_chosen_is_said_and_no_failure(folder: Folder) -> None:
    """A run without errors is good news."""
    folder.span("fine")
    result = run(folder.path, "--errors")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no span matches: searched 1 trace\n"
    assert run(folder.path, "--errors", "--json").stdout == "[]\n"


def test_the_newest_traces_are_shown_and_the_others_counted(folder: Folder) -> None:
    """Ten traces unless asked for otherwise, the newest first."""
    for number in range(12):
        folder.new_trace()
        folder.span(f"run {number}", start=number * SECOND)
    *shown, rest = lines(folder.path, "--all")
    assert [left(line) for line in shown] == [f"run {number}" for number in range(11, 1, -1)]
    assert rest == "2 older traces not shown; --last 12 shows all"
    assert len(lines(folder.path, "--all", "--last", 12)) == 12
    assert left(lines(folder.path, "--all", "--last", 1)[0]) == "run 11"


def test_the_newest_run_is_shown_unless_another_is_chosen(folder: Folder) -> None:
    """As in other commands; a note tells that there are others. A run may have many traces, which name its job."""
    for number in range(4):
        folder.new_trace()
        attributes = {"ray.job_id": f"0{number // 2}000000"}
        where = {**WORKER, "ray.cluster.session_name": "session"}
        folder.span(f"part {number}", start=number * SECOND, attributes=attributes, where=where)
    assert [left(line) for line in lines(folder.path)] == ["part 3", "part 2"]
    assert run(folder.path).stderr.startswith("note: this is the newest of 2 runs; --job ID")
    assert [left(line) for line in lines(folder.path, "--job", "00")] == ["part 1", "part 0"]
    assert run(folder.path, "--job", "00").stderr == ""
    assert len(lines(folder.path, "--all")) == 4


def test_a_trace_is_chosen_by_the_beginning_of_its_id(folder: Folder) -> None:
    """In either case of letters."""
    for number in range(10):
        folder.new_trace()
        folder.span(f"run {number}")
    assert len(lines(folder.path, "--trace", folder.trace[:8].upper())) == 1


def test_the_beginning_of_several_ids_means_none_of_them(folder: Folder) -> None:
    """It says what was given, and which ids begin so."""
    for number in range(4):
        folder.new_trace()
        folder.trace = f"ab{number:030x}"
        folder.span(f"run {number}")
    refused = run(folder.path, "--trace", "AB")
    assert (refused.exit_code, refused.stdout) == (1, "")
    said = " ".join(refused.stderr.split())
    some = ", ".join(f"ab{number:030x}" for number in range(3))
    assert f"4 traces start with 'AB' (--trace): {some}, ...; give more digits" in said
    assert run(folder.path, "--trace", f"ab{3:030x}"[:31]).exit_code == 1
    assert len(lines(folder.path, "--trace", f"AB{3:030x}")) == 1


def test_json_has_every_span_with_its_children(folder: Folder) -> None:
    """A list of traces; nothing is put together, and numbers that JSON lacks are text."""
    root = folder.span("root", took=SECOND, where=DRIVER)
    folder.call("f", root, took=5 * MS, error="ValueError: x", attributes={"colour": "red"})
    folder.call("f", root, start=1)
    (trace,) = json.loads(run(folder.path, "--json").stdout)
    assert (trace["trace_id"], trace["spans"], trace["errors"], trace["orphans"]) == (folder.trace, 5, 1, 0)
    (top,) = trace["roots"]
    first, second = top["children"]
    (execution,) = first["children"]
    assert (first["name"], first["kind"], second["name"]) == ("f ray.remote", "PRODUCER", "f ray.remote")
    assert execution["children"] == []
    assert {key: execution[key] for key in ("name", "duration_ns", "state", "status", "error", "attributes")} == {
        "name": "f ray.remote_worker",
        "duration_ns": 5 * MS,
        "state": "ended",
        "status": "error",
        "error": "ValueError: x",
        "attributes": {"colour": "red"},
    }


def test_a_very_deep_trace_is_shown(folder: Folder) -> None:
    """A chain of calls deeper than Python's stack prints, as text and as JSON, in a bounded width."""
    parent = ""
    for number in range(2000):
        parent = folder.span(f"level {number}", parent, start=number)
    printed = lines(folder.path)
    assert len(printed) == 2000
    assert max(map(len, printed)) < 250
    assert run(folder.path, "--json").stdout.count('"name": "level') == 2000


def test_names_cannot_command_the_terminal(folder: Folder) -> None:
    """Control, bidirectional and markup characters are shown, not obeyed, in names, errors and places."""
    nasty = "a\x1b[31m\u202eb\nc[red]d"
    folder.span(nasty, error=nasty, where={"host.name": nasty})
    result = run(folder.path)
    assert "a\\x1b[31m\\u202eb\\nc[red]d" in result.stdout
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output
    assert "\x1b" not in run(folder.path, "--json").output


def test_what_is_wrong_with_the_data_is_one_note(folder: Folder) -> None:
    """On stderr, and only if something is."""
    folder.span("fine")
    assert run(folder.path).stderr == ""
    folder.span("orphan", "f" * 16)
    with open(folder.path / "spans.jsonl", "a") as file:
        file.write("{\n")
    note = run(folder.path).stderr
    assert note.startswith(f"note: 1 bad line skipped (the first: {folder.path}/spans.jsonl:3: not JSON: ")
    assert note.endswith("; 1 span without the parent it names\n")
    assert run(folder.path, "--json").stderr == note


def test_a_parent_that_cannot_be_there_is_no_loss(folder: Folder) -> None:
    """That of a request is the client's span. That of a driver's calls is stored when it ends, and other spans name it
    too.
    """
    driver, other = "d" * 16, "f" * 16
    of_driver = {"ray.parent_task_id": "f" * 40 + "01000000"}
    for _ in range(2):
        folder.span("GET /", "e" * 16, kind=SERVER)
        folder.span("m.f ray.remote", driver, kind=PRODUCER, attributes=of_driver)
    folder.span("mine", driver)
    folder.span("m.f ray.remote_worker", other, kind=CONSUMER, attributes=of_driver)
    said = (
        "1 span without the parent it names; 3 spans whose driver has not ended, or is in another file; "
        "2 requests continue traces of other systems"
    )
    assert run(folder.path).stderr == f"note: {said}\n"
    summary = CliRunner().invoke(main, ["summary", str(folder.path)])
    assert said in " ".join(summary.stdout.split())
    folder.new_trace()
    folder.span("GET /", "e" * 16, kind=SERVER)
    assert run(folder.path, "--trace", folder.trace).stderr == "note: 1 request continues a trace of another system\n"


def test_the_note_counts_spans_without_a_parent_in_the_traces_that_are_shown(folder: Folder) -> None:
    """Others are no reason to doubt these."""
    folder.span("orphan", "f" * 16)
    folder.new_trace()
    folder.span("fine")
    assert run(folder.path, "--all").stderr == "note: 1 span without the parent it names\n"
    assert run(folder.path, "--trace", folder.trace).stderr == ""
    assert run(folder.path, "--all", "--name", "fine", "--json").stderr == ""


def test_wrong_use_ends_with_code_2(folder: Folder) -> None:
    """A path that does not exist and an option's value that is wrong: what was given and what is expected."""
    folder.span("fine")
    for arguments, complaint in (
        ([folder.path, "--trace", "xyz"], "'xyz' is not a trace id: expected up to 32 hex digits"),
        ([folder.path, "--min-duration", "fast"], "'fast' is not a duration: expected a number and us, ms, s, m or h"),
        ([folder.path, "--min-duration", "9" * 400 + "s"], "... is longer than any span"),
        ([folder.path, "--last", "0"], "'0' is not valid: expected a whole number from 1 to 1,000,000,000"),
        ([folder.path, "--colour"], "No such option"),
    ):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert complaint in " ".join(result.stderr.split())
    for missing, complaint in (
        (("/no/such",), "'/no/such' does not exist: expected a folder or a file of spans"),
        ((folder.path, "--trace", "f"), "none of 1 trace starts with 'f' (--trace)"),
    ):
        result = run(*missing)
        assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {complaint}\n")


def test_a_place_without_spans_ends_with_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what was looked for and how to record some."""
    result = run(tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"no spans in {tmp_path}: it contains no *.jsonl, *.jsonl.gz, *.parquet or *.spool." in result.stderr
    assert 'ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup")' in result.stderr
    (tmp_path / "a.jsonl").write_text("bad\n")
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "a.jsonl:1: not JSON" in result.stderr
    monkeypatch.setenv("RAY_TRACING_LOCAL_DIR", str(tmp_path / "not yet"))
    result = run()
    assert result.exit_code == 1
    assert f"the folder {tmp_path / 'not yet'} does not exist" in result.stderr


def test_the_configured_folder_is_the_default(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the local exporter writes is where the command looks."""
    folder.span("found")
    monkeypatch.setenv("RAY_TRACING_LOCAL_DIR", str(folder.path))
    assert lines()[0].startswith("found  ")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_a_terminal(folder: Folder, width: int) -> None:
    """In a terminal long names lose their middle; marks, guides and times stay."""
    root = folder.span("a_module_with_a_long_name.and_a_function_with_a_longer_name_still", where=DRIVER)
    for _ in range(3):
        folder.call("another_module_with_a_long_name.and_its_function_with_a_long_name", root, took=MS)
    folder.call("f", root, start=9, error="ValueError: " + "long " * 50)
    rows = [line for line in printed(width, folder) if not line.startswith("trace ")]
    assert max(map(len, rows)) <= width
    assert any(line.startswith("├─ another") and "… x3" not in line and " x3 " in line for line in rows)
    assert any("…" in line for line in rows)


def test_a_narrow_terminal_keeps_what_calls_waited(folder: Folder) -> None:
    """The least and greatest time go first, then SUBMIT; WHERE is cut before it goes, and QUEUED goes last."""
    root = folder.span("driver.py ray.driver", where=DRIVER)
    for took in (MS, 2 * MS):
        folder.call("a_module.and_a_function_of_it", root, took=took)
    titles = {width: printed(width, folder)[0].split("  ") for width in (120, 80, 66, 44)}
    shown = {width: [each.strip() for each in titles[width] if each] for width in titles}
    assert shown == {
        120: ["TIME", "MIN .. MAX", "QUEUED", "SUBMIT", "WHERE"],
        80: ["TIME", "QUEUED", "SUBMIT", "WHERE"],
        66: ["TIME", "QUEUED", "WHERE"],
        44: ["TIME", "QUEUED"],
    }


def printed(width: int, folder: Folder) -> list[str]:
    """The lines on a terminal of this width where NO_COLOR is set: in bold and dim, and in no colour."""
    lines = in_terminal(width, "tree", folder.path, NO_COLOR="1")
    assert set(STYLE.findall("".join(lines))) <= {"0", "1", "2"}
    return [STYLE.sub("", line) for line in lines]


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0.00 us"),
        (812_000, "812 us"),
        (999_600, "1.00 ms"),
        (1_234_567, "1.23 ms"),
        (45_678_000_000, "45.7 s"),
        (59_960_000_000, "1m 00s"),
        (125_000_000_000, "2m 05s"),
        (3_720_000_000_000, "1h 02m"),
    ],
)
def test_durations_are_short(nanoseconds: int, text: str) -> None:
    """Three digits and a unit."""
    assert duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("text", "nanoseconds"), [("10ms", 10 * MS), ("1.5 s", 1_500 * MS), ("5us", 5000), ("2m", 120 * SECOND)]
)
def test_durations_can_be_typed(text: str, nanoseconds: int) -> None:
    """With a unit, with or without a space and a fraction."""
    assert parse_duration(text) == nanoseconds


def test_what_an_output_cannot_show_is_escaped(folder: Folder) -> None:
    """Letters of any script are kept where it can."""
    assert safe("漢字\N{ZERO WIDTH SPACE}") == "漢字\\u200b"
    folder.call("漢字", folder.span("root"))
    command = [sys.executable, "-m", "ray_tracing_hooks", "tree", str(folder.path)]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "\\u2514\\u2500 \\u6f22\\u5b57" in done.stdout


def test_what_a_rate_limit_has_left_out_is_told(folder: Folder) -> None:
    """On the line of the function, summed up, and the rest on that of the task or driver that made the calls."""
    root = folder.span("main.py ray.driver", attributes={"ray.left_out": 1200})
    for left_out in (5, 7):
        submit = folder.span("mod.f ray.remote", root, kind=PRODUCER, attributes={"ray.left_out": left_out})
        folder.span("mod.f ray.remote_worker", submit, kind=CONSUMER)
    assert [left(line) for line in lines(folder.path)] == [
        "main.py ray.driver +1,200 left out",
        "└─ mod.f x2 +12 left out",
    ]


def test_a_submission_that_a_worker_recorded_has_no_times(folder: Folder) -> None:
    """It knows when the call was submitted, and not how long that took."""
    kept = {"ray.sampling.reason": "error"}
    root = folder.span("main.py ray.driver", took=9 * MS)
    for name, took in (("mod.kept", 0), ("mod.refused", 3 * MS)):
        folder.span(f"{name} ray.remote", root, took=took, kind=PRODUCER, attributes=kept)
    submit = folder.span("mod.f ray.remote", root, took=0, kind=PRODUCER, attributes=kept)
    folder.span("mod.f ray.remote_worker", submit, start=2 * MS, took=MS, kind=CONSUMER)
    text = run(folder.path).stdout
    assert "SUBMIT" not in text
    shown = {line.split()[1]: line for line in text.splitlines() if "mod." in line}
    assert " us " not in text
    assert ["3.00 ms" in shown[name] for name in ("mod.kept", "mod.refused")] == [False, True]
    assert "1.00 ms" in shown["mod.f"]
    assert "2.00 ms" in shown["mod.f"]


def test_calls_with_few_names_have_a_line_for_each_and_those_with_many_one(folder: Folder) -> None:
    """What `.options(name=...)` gave is shown: of a single call, of calls with few names; else how many names."""
    root = folder.span("job.py ray.driver", took=SECOND)

    def call(function: str, name: str, number: int) -> None:
        given = {"ray.name": name} if name else {}
        above = folder.span(f"{function} ray.remote", root, start=number * MS, kind=PRODUCER, attributes=given)
        folder.span(f"{function} ray.remote_worker", above, start=(number + 1) * MS, kind=CONSUMER)

    for number in range(12):
        call("step", ["load", "save", ""][number % 3], number)
        call("trial", f"trial-{number}", number)
        call("work", "work", number)
    call("check", "\x1b[31mlast", 20)
    call("once", "named", 21)
    call("once", "", 22)
    text = run(folder.path).stdout
    assert re.search(r'step "load" x4 ', text)
    assert re.search(r'step "save" x4 ', text)
    assert re.search(r"step x4 ", text)
    assert re.search(r"trial \(12 names\) x12 ", text)
    assert re.search(r"work x12 ", text), "a name that is the function's own says nothing"
    assert 'check "\\x1b[31mlast" ' in text
    assert re.search(r"once \(1 name\) x2 ", text), "the other call has none"
    assert 'trial "trial-7" ' in run(folder.path, "--no-collapse").stdout


def test_attributes_are_shown_on_request(folder: Folder) -> None:
    """Below their span, all or those whose keys fit; of a group its values. What is in them stays text."""
    root = folder.span("root", took=SECOND, attributes={"plain": "a\x1b[31m\nb", "http.route": "/x", "size": 3})
    for number in range(5):
        folder.span("part", root, start=number * MS, attributes={"number": number, "same": "yes"})
    shown = run(folder.path, "--attributes").stdout
    assert "plain: a\\x1b[31m\\nb\n" in shown
    assert "number: 0, 1, 2 and 2 other values" in shown
    assert "same: yes\n" in shown
    chosen = run(folder.path, "--attribute", "http.*", "--attribute", "size").stdout
    assert "http.route: /x" in chosen
    assert "size: 3" in chosen
    assert "plain" not in chosen
    assert "plain" not in run(folder.path).stdout
