"""Compares what the summary says of a recorded program with what is expected of it."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

from corpus import DRIVER, FACTOR, QUIET, Program
from corpus.recording import measured, path_of, states_of
from ray_tracing_hooks import names
from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli.screen import print_lines
from ray_tracing_hooks._cli.summary.document import document
from ray_tracing_hooks._cli.summary.text import lines
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import MEANINGS, RUN, SUBMIT
from ray_tracing_hooks._insight.analysis.findings import find
from ray_tracing_hooks._insight.views.page.content import content
from ray_tracing_hooks._insight.views.redaction import Redaction

PLANTED, ASSUMED, MENDED, FASTER, SLOWER = "planted", "assumed", "mended", "faster", "slower"
"""The forms of a program: as planted, the same as if its waits had not been recorded, without its cause, and with all
times a tenth and ten times as long."""

SCALES = {FASTER: 0.1, SLOWER: 10.0}

_SECONDS = re.compile(r"_time(\.|$)|\.seconds$|^ray\.(timeout|generator_held)$")
"""Attributes that are durations."""

NOISE = 0.3
"""Seconds by which two runs of the same program may differ, besides a tenth."""

_OF_RAY = frozenset(
    {"large-arguments", "slow-results", "tiny-tasks", "training-start", "waiting-for-resources", "worker-start"}
)
"""Kinds of findings about what Ray itself takes, from more milliseconds or seconds on than it usually takes."""

_TRUE_OF = {ASSUMED: frozenset({"unrecorded"}), SLOWER: _OF_RAY}
"""Kinds of findings that are true of any program in this form: time is unexplained where waits were not recorded, and
Ray takes ten times as long where all is as much slower."""

_OF_FUNCTIONS = (RUN, SUBMIT)
"""Kinds of time on the critical path that are listed by function."""

_WAITS = ("ray.get", "ray.wait", names.AWAIT)


@dataclass
class Judged:
    """What the summary says of one form of a program."""

    program: Program
    form: str
    analysis: Analysis
    measured: dict[str, Any]
    """What the program measured in the forms in which it ran."""

    @cached_property
    def document(self) -> dict[str, Any]:
        """That of ``summary --json``."""
        return document(self.analysis)

    @cached_property
    def text(self) -> str:
        """That of ``summary``, in one line."""
        with redirect_stdout(io.StringIO()) as printed:
            print_lines(lines(self.analysis, find(self.analysis), 1, verbose=False))
        return " ".join(printed.getvalue().split())

    @property
    def findings(self) -> list[dict[str, Any]]:
        """In the order of the summary."""
        found: list[dict[str, Any]] = self.document["findings"]
        return found

    @property
    def wall(self) -> float:
        """Seconds that the run took."""
        return float(self.document["run"]["wall_ns"]) / 1e9

    def functions_on_path(self) -> Iterator[tuple[str, float]]:
        """Each function with the seconds that its code was on the critical path, the longest first."""
        for each in self.document["critical_path"]["functions"]:
            yield each["function"].removeprefix("__main__."), each["ns"] / 1e9

    # --- the causes -------------------------------------------------------------------------------------------

    @cached_property
    def named(self) -> list[float | None]:
        """For each cause, the seconds that the summary says it costs; None if it is not named where it has to be."""
        program = self.program
        if program.on_path:
            first = next(self.functions_on_path(), ("", 0.0))
            wanted = self.document["run"]["name"] if program.on_path == DRIVER else program.on_path
            quiet = all(each["share"] < QUIET or each["kind"] in program.beside for each in self.findings)
            return [first[1] if first[0].split(" ")[0] == wanted and quiet else None]
        expected = {kind for kinds in program.finds for kind in kinds}
        most = self.findings
        if self.form == SLOWER:
            most = [each for each in most if each["kind"] not in _OF_RAY - expected]
        first_ones = most[: len(program.finds)]
        costs: list[float | None] = []
        for kinds in program.finds:
            fits = next((each for each in first_ones if each["kind"] in kinds), None)
            if fits is None:
                costs.append(None)
                continue
            first_ones = [each for each in first_ones if each is not fits]
            costs.append(fits["share"] * self.wall)
        return costs

    def complaints(self) -> dict[str, str]:
        """What is not as it has to be: by check, in words.

        ``first``: a cause is not named first; ``words``: what shows it is missing; ``cost``: the named cost is not the
        measured one; ``bound``: the mended program saved more than could be saved at most; ``false``: the summary says
        what is not true; ``sum``: shares do not add up; ``page``: the page says something else.
        """
        found = {"false": "; ".join(self._false()), "sum": "; ".join(self._sums())}
        if self.form == PLANTED:
            found["page"] = "; ".join(self._page())
        if self.form in SCALES and not self.program.is_healthy:
            found |= {"first": "; ".join(self._first()), "cost": "; ".join(self._costs())}
        if self.form == PLANTED and not self.program.is_healthy:
            found |= {
                "first": "; ".join(self._first()),
                "words": "; ".join(self._words()),
                "cost": "; ".join(self._costs()),
                "bound": "; ".join(self._bounds()),
            }
        return {check: text for check, text in found.items() if text}

    def _first(self) -> Iterator[str]:
        said = {each["kind"] for each in self.findings}
        for number, cost in enumerate(self.named):
            kinds = self.program.finds[number] if self.program.finds else ()
            may_go = self.form == FASTER or (self.form == SLOWER and not _OF_RAY.isdisjoint(kinds))
            if kinds and may_go and said.isdisjoint(kinds):
                continue  # what it costs then is not worth a word, or no more than what Ray takes
            if cost is None:
                wanted = self.program.on_path or " or ".join(self.program.finds[number])
                heads = [f"{each['kind']} {each['share']:.0%}" for each in self.findings[:3]]
                path = next(self.functions_on_path(), ("nothing", 0.0))
                yield f"{wanted} is not named first, but {', '.join(heads) or 'no finding'} (path: {path[0]})"

    def _words(self) -> Iterator[str]:
        if self.program.says and self.named[0] is not None:
            text = next(each["text"] for each in self.findings if each["kind"] in self.program.finds[0])
            missing = [word for word in self.program.says if word not in text]
            if missing:
                yield f"{', '.join(missing)} not in: {text}"

    def _costs(self) -> Iterator[str]:
        costs = [each * SCALES.get(self.form, 1) for each in self.measured["planted"]["costs"]]
        for number, (claimed, real) in enumerate(zip(self.named, costs, strict=False)):
            if self.form in SCALES and not _OF_RAY.isdisjoint((*self.program.finds, ())[number]):
                continue  # a part of what it costs is what Ray takes
            if claimed is not None and not real / FACTOR <= claimed <= real * FACTOR:
                yield f"cause {number + 1} is said to cost {claimed:.2f} s, and costs {real:.2f} s"

    def _bounds(self) -> Iterator[str]:
        claimed = [cost for cost in self.named if cost]
        if len(claimed) == len(self.named) and self.saved > 1.1 * sum(claimed) + NOISE:
            yield f"at most {sum(claimed):.2f} s could be saved, and {self.saved:.2f} s were"

    @property
    def saved(self) -> float:
        """Seconds that the mended program was faster."""
        return float(self.measured["planted"]["wall"] - self.measured["mended"]["wall"])

    # --- what must not be said --------------------------------------------------------------------------------

    def _false(self) -> Iterator[str]:
        program = self.program
        expected = {kind for kinds in program.finds for kind in kinds}
        for each in self.findings:
            is_large = each["share"] >= QUIET or each["share"] == 0
            if self.form == MENDED:
                left = each["share"] * self.wall
                if each["kind"] in expected and left > max(0.3 * sum(self.measured[PLANTED]["costs"]), QUIET):
                    yield f"{each['kind']} is mended, and said to cost {left:.2f} s: {each['text']}"
            elif is_large and each["kind"] not in expected | set(program.beside) | _TRUE_OF.get(self.form, frozenset()):
                yield f"{each['kind']} {each['share']:.0%}: {each['text']}"
        if self.form == MENDED or self.form in SCALES:
            return
        for word in program.never:
            if word in self.text:
                yield f"it says {word!r}"
        if self.form == ASSUMED:
            if "Exact" in self.text:
                yield "it says Exact without waits"
            return
        split = {each["kind"]: each["share"] for each in self.document["time_split"]}
        path = {each["kind"]: each["share"] for each in self.document["critical_path"]["kinds"]}
        for kind, most in program.at_most.items():
            for where, shares in (("of the run", split), ("of the path", path)):
                if shares[kind] > most:
                    yield f"{kind} is {shares[kind]:.0%} {where}, and was at most {most:.0%}"

    def _sums(self) -> Iterator[str]:
        wall = self.document["run"]["wall_ns"]
        for name, kinds in (("split", "time_split"), ("path", "critical_path")):
            found = self.document[kinds] if kinds == "time_split" else self.document[kinds]["kinds"]
            if (total := sum(each["ns"] for each in found)) != wall:
                yield f"the {name} adds up to {total / wall:.0%}"
            if any(each["share"] > 1 for each in found):
                yield f"a share of the {name} is above 100 %"
        if any(each["share"] > 1 for each in self.findings):
            yield "a finding costs more than 100 %"

    def _page(self) -> Iterator[str]:
        page = content(self.analysis, "", 10**6, Redaction()).meta
        if page["path"]["by"]:
            path = self.document["critical_path"]
            parts = {each["function"]: each["ns"] for each in path["functions"]}
            parts |= {MEANINGS[each["kind"]]: each["ns"] for each in path["kinds"] if each["kind"] not in _OF_FUNCTIONS}
            if {each["label"]: each["ns"] for each in page["path"]["by"]} != {at: ns for at, ns in parts.items() if ns}:
                yield "the page has another critical path"
        wall = next(value for label, value, *_ in page["facts"] if label == "wall time")
        if f" {wall} " not in self.text:
            yield f"the run took {wall} only on the page"
        if [each["kind"] for each in page["findings"]] != [each["kind"] for each in self.findings]:
            yield "the page has other findings"
        for each in page["findings"]:
            text = each["text"].removesuffix(" (assumed: not all of it is recorded)")
            head = each["title"] + (f": {each['cost']}" if each["cost"] else "")
            # The page begins the evidence with a capital letter.
            yield from (f"only on the page: {part}" for part in (head, text[1:]) if part not in self.text)


def forms(program: Program) -> tuple[str, ...]:
    """Those in which a program is judged."""
    return (PLANTED, ASSUMED, *SCALES) if program.is_healthy else (PLANTED, ASSUMED, MENDED, *SCALES)


def judged(program: Program, form: str, folder: Path) -> Judged:
    """One form of a recorded program; ``folder`` is for a temporary file."""
    path = path_of(program, mended=form == MENDED)
    if form == ASSUMED:
        recorded, path = path, folder / "assumed.jsonl"
        path.write_bytes(b"\n".join(without_waits(gzip.decompress(recorded.read_bytes()).splitlines())))
        if program.states:
            shutil.copy(states_of(program, mended=False), folder)
    if form in SCALES:
        recorded, path = path, folder / f"{form}.jsonl"
        lines = [json.loads(line) for line in gzip.decompress(recorded.read_bytes()).splitlines()]
        origin = min(int(each["startTimeUnixNano"]) for line in lines for each in _spans(line))
        path.write_text("\n".join(json.dumps(scaled(line, SCALES[form], origin)) for line in lines))
        if program.states:
            told = states_of(program, mended=False)
            states = (scaled(json.loads(line), SCALES[form], origin) for line in told.read_text().splitlines())
            (folder / told.name).write_text("\n".join(map(json.dumps, states)))
    analysis, _ = inputs.chosen([str(path)], inputs.Which())
    return Judged(program, form, analysis, measured(program))


def scaled(data: Any, scale: float, origin: int) -> Any:
    """A part of a recording, or of Ray's task states, with all times so much longer. ``origin`` stays."""

    def time(ns: int) -> int:
        return origin + round((ns - origin) * scale)

    if isinstance(data, list):
        return [scaled(each, scale, origin) for each in data]
    if not isinstance(data, dict):
        return data
    key = data.get("key", "")
    if key == "process.creation.time":
        began = datetime.fromisoformat(data["value"]["stringValue"])
        moved = datetime.fromtimestamp(time(round(began.timestamp() * 1e9)) / 1e9, timezone.utc)
        return {"key": key, "value": {"stringValue": moved.isoformat(timespec="milliseconds").replace("+00:00", "Z")}}
    if key.endswith("unix_nano"):
        return {"key": key, "value": {"intValue": str(time(int(data["value"]["intValue"])))}}
    if _SECONDS.search(key):
        return {"key": key, "value": _times(data["value"], scale)}
    if key:  # of an attribute without a time, as most are
        return data
    found = {}
    for name, value in data.items():
        if name.lower().endswith("unixnano") or name.endswith("unix_nano"):
            found[name] = type(value)(time(int(value)))
        elif name == "states":
            found[name] = {state: time(at) for state, at in value.items()}
        else:
            found[name] = scaled(value, scale, origin)
    return found


def _times(value: Any, scale: float) -> Any:
    """A duration in seconds, or several, so much longer."""
    if "arrayValue" in value:
        return {"arrayValue": {"values": [_times(each, scale) for each in value["arrayValue"].get("values", ())]}}
    return {kind: float(each) * scale if kind == "doubleValue" else each for kind, each in value.items()}


def _spans(line: Any) -> Iterator[Any]:
    return (
        each
        for of_resource in line["resourceSpans"]
        for of_scope in of_resource.get("scopeSpans", ())
        for each in of_scope["spans"]
    )


def without_waits(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a recording as they would be if ``get`` and ``wait`` were not in ``RAY_TRACING_RAY``."""
    for line in lines:
        data = json.loads(line)
        for of_resource in data["resourceSpans"]:
            for attribute in of_resource["resource"]["attributes"]:
                if attribute["key"] == names.RESOURCE_PARTS:
                    parts = attribute["value"]["stringValue"].split(",")
                    attribute["value"]["stringValue"] = ",".join(each for each in parts if each not in {"get", "wait"})
            for of_scope in of_resource.get("scopeSpans", ()):
                of_scope["spans"] = [each for each in of_scope["spans"] if each["name"] not in _WAITS]
        yield json.dumps(data).encode()
