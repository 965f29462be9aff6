"""What lies in subfolders is read as what lies in the folder itself, also where one of them cannot be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hand_made import MS, START, HandMade

from ray_tracing_hooks import names
from ray_tracing_hooks._cli import main
from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._formats.task_states import About, Attempt
from ray_tracing_hooks._insight.ingest.files import folders_of


def run() -> HandMade:
    """A driver with a task that holds a GPU."""
    made = HandMade()
    driver = made.driver(0, 1000)
    call = made.submit(driver, "m.f", 1)
    made.run(call, 500, 900, attributes={names.RAY_ACCELERATOR_IDS: ["GPU:0"]})
    return made


def write_beside(folder: Path, made: HandMade) -> None:
    """Write the spans of a run to a folder, and beside them task states, and samples of the GPU."""
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(made.as_json_lines())
    task = next(span.attributes[names.RAY_TASK_ID] for span in made.spans if names.RAY_TASK_ID in span.attributes)
    states = {"PENDING_ARGS_AVAIL": START + MS, "RUNNING": START + 400 * MS, "FINISHED": START + 950 * MS}
    found = task_states.lines(About("s", START, 0), [Attempt(task, 0, "m.f", "NORMAL_TASK", "01000000", states)])
    (folder / task_states.file_name("s")).write_bytes(b"".join(found))
    (folder / "metrics").mkdir()
    points = [
        {
            "timeUnixNano": str(START + at * MS),
            "asDouble": 0.25,
            "attributes": [{"key": names.RAY_ACCELERATOR_ID, "value": {"stringValue": "GPU:0"}}],
        }
        for at in range(500, 901, 40)
    ]
    metric = {"name": names.GPU_UTILIZATION, "gauge": {"dataPoints": points}}
    resource = {"attributes": [{"key": names.RESOURCE_NODE_ID, "value": {"stringValue": "n1"}}]}
    metrics = {"resource": resource, "scopeMetrics": [{"metrics": [metric]}]}
    (folder / "metrics" / "a.jsonl").write_text(json.dumps({"resourceMetrics": [metrics]}) + "\n")


def test_what_lies_beside_spans_is_found_in_subfolders_too(tmp_path: Path) -> None:
    """The summary of the folder above says the same as that of the folder."""
    folder = tmp_path / "spans" / "run"
    folder.parent.mkdir()
    write_beside(folder, run())
    summaries = []
    for path in (folder, folder / "a.jsonl", folder.parent):
        shown = CliRunner().invoke(main, ["summary", str(path), "--json"])
        assert (shown.exit_code, shown.stderr) == (0, "")
        summaries.append(json.loads(shown.stdout))
    assert summaries[0]["queues"]
    assert summaries[0]["accelerators"][0]["used"] == pytest.approx(0.25)
    assert summaries[1] == summaries[0]
    assert summaries[2] == summaries[0]


def test_folders_of_spans_are_those_that_are_searched(tmp_path: Path) -> None:
    """Once each; not those of other signals, and no links."""
    for name in ("run", "metrics", "logs", "aside"):
        (tmp_path / name).mkdir()
    (tmp_path / "run" / "a.jsonl").touch()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    folder, inner = str(tmp_path), str(tmp_path / "run")
    assert folders_of([folder, inner, os.path.join(inner, "a.jsonl")]) == [folder, inner]
    assert folders_of(["a.jsonl"]) == ["."]


# --- folders that cannot be read ----------------------------------------------------------------------------------

PROGRAM = """\
import json, os, sys
from click.testing import CliRunner
from ray_tracing_hooks._cli import main
commands = json.loads(sys.argv[1])
for each in commands[:5]:
    CliRunner().invoke(main, each)  # imports what root alone may be able to read
if os.geteuid() == 0:
    os.setuid(65534)
answers = [CliRunner().invoke(main, each) for each in commands]
print(json.dumps([[each.exit_code, each.stdout, each.stderr] for each in answers]))
"""


def answers(*commands: list[str]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of these commands, for a user who is not root."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120)
    return [(code, out, err) for code, out, err in json.loads(done.stdout.splitlines()[-1])]


@pytest.fixture
def shared() -> Iterator[list[Path]]:
    """Folders of spans that everybody can read, also above them. In each is one that only its owner can read."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        folders = [Path(above) / name for name in ("one", "other")]
        for folder, mode in zip(folders, (0o000, 0o444), strict=True):
            (folder / "closed").mkdir(parents=True)
            for name in ("a.jsonl", "closed/b.jsonl"):
                (folder / name).write_bytes(run().as_json_lines())
            (folder / "closed").chmod(mode)
        yield folders
        for folder in folders:
            (folder / "closed").chmod(0o700)


def test_a_subfolder_that_cannot_be_read_is_one_problem_of_the_data(shared: list[Path]) -> None:
    """The rest is shown, and the reason is said once: for the folder, or for a file of which only the name shows. Who
    names a folder wants what is in it.
    """
    commands = [
        [*command.split(), str(folder)]
        for folder in shared
        for command in (
            "summary",
            "tree",
            "export --format perfetto -o -",
            "export --format otlp -o -",
            "replay --dry-run --exporter console",
        )
    ]
    *shown, (code, _, said) = answers(*commands, ["summary", str(shared[0] / "closed")])
    assert code == 1
    assert said == f"Error: {str(shared[0] / 'closed')!r} cannot be read: Permission denied\n"
    for where, answered in ((shared[0] / "closed", shown[:5]), (shared[1] / "closed" / "b.jsonl", shown[5:])):
        reason = f"1 file or folder not completely read (the first: {where}: Permission denied)"
        *texts, (code, out, err) = answered
        assert (code, "3 spans would be sent" in out + err) == (0, True)
        assert err.count(f"{where}: Permission denied") == 1
        assert texts[-1][1].count('"spanId"') == 3
        for code, out, err in texts:
            assert code == 0
            assert " ".join((out + err).split()).count("Permission denied") == 1
            assert reason in " ".join((out + err).split())
