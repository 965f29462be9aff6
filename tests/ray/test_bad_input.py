"""Bad input: the program runs on with the same result, and one clear line says what is wrong."""

from __future__ import annotations

from pathlib import Path

from conftest import Cluster
from support import Run, by_name, run_program, spans_in

RESULT = [2, 3]


def told(run: Run) -> list[str]:
    """What our package told the user, but for the lines that say what is on, and what there is at the end."""
    lines = [line for line in run.stderr.splitlines() if "ray_tracing_hooks:" in line]
    usual = ("tracing is on", "next: ray-tracing-hooks summary")
    return [line.partition("ray_tracing_hooks: ")[2] for line in lines if not any(each in line for each in usual)]


def run_small(**variables: str) -> Run:
    run = run_program("small", check=True, RTH_HOOK="ray_tracing_hooks:setup", **variables)
    assert run.result == RESULT
    return run


def test_where_no_new_trace_is_sampled_it_does_not_say_that_tracing_is_on(cluster: Cluster) -> None:
    """Where none is sampled at all, see ``test_capture.py``."""
    before = by_name(spans_in(cluster.spans), "small.py ray.driver")
    run = run_program(
        "small",
        RTH_ADDRESS=cluster.address,
        RAY_TRACING_LOCAL_DIR=str(cluster.spans),
        OTEL_TRACES_SAMPLER="parentbased_traceidratio",
        OTEL_TRACES_SAMPLER_ARG="0",
    )
    assert run.result == RESULT
    assert by_name(spans_in(cluster.spans), "small.py ray.driver") == before
    (line,) = [line for line in run.stderr.splitlines() if "ray_tracing_hooks:" in line]
    assert "OTEL_TRACES_SAMPLER samples no new trace, spans that are recorded all the same go to " in line


def test_no_exporter_at_all_leaves_the_program_alone(tmp_path: Path) -> None:
    run = run_small(RAY_TRACING_EXPORTERS="none", RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"))
    assert told(run) == []
    assert not (tmp_path / "spans").exists()


def test_what_is_wrong_is_said_once_and_the_rest_counts(tmp_path: Path) -> None:
    """An exporter in a variable, a key in the settings file, and a folder that is a link, where nothing is written."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "spans").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "traces.yaml").write_text(f"local_dirr: /nowhere\nlocal_dir: {tmp_path / 'spans'}\n")
    run = run_small(
        RAY_TRACING_EXPORTERS="jagger",
        RAY_TRACING_CONFIG=str(tmp_path / "traces.yaml"),
        RAY_TRACING_FLUSH_TIMEOUT="5",
    )
    *settings, of_folder, waiting = told(run)
    of_file, of_exporter = sorted(settings, key=lambda problem: "jagger" in problem)
    assert "unknown setting 'local_dirr'" in of_file
    assert "did you mean 'local_dir'?" in of_file
    assert "RAY_TRACING_EXPORTERS" in of_exporter
    assert "'jagger'" in of_exporter
    assert "local" in of_exporter
    assert str(tmp_path / "spans") in of_folder
    assert "link" in of_folder
    assert waiting.startswith("7 spans wait in ")
    assert "ray-tracing-hooks replay" in waiting
    assert list((tmp_path / "elsewhere").iterdir()) == []
