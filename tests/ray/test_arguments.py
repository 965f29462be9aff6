"""Arguments and results are shown where that is asked for, and secrets among them nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import support
from conftest import Cluster
from endings import no_process_is_left
from support import HOOK, run_program, spans_in

from ray_tracing_hooks import names

SECRET = "hunter2-canary"
RESULTS = [2, ["zoë", True], len(SECRET), 10, "Hostile", 1, [0, 1], "me: why", 0.5, 3, 4]


def test_executions_show_arguments_and_results_without_secrets(tmp_path: Path) -> None:
    """By the names of the parameters, also for positional arguments and behind decorators; calls of tasks likewise."""
    before = sessions()
    run = run_program("arguments", RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(tmp_path), RAY_TRACING_ARGUMENTS="1")
    assert run.result == RESULTS
    shown = {
        span.name.removesuffix(" ray.remote_worker").removeprefix("__main__."): (
            span.attributes.get(names.RAY_ARGUMENTS),
            span.attributes.get(names.RAY_RESULT),
        )
        for span in sorted(spans_in(tmp_path), key=lambda span: span.start_ns)
        if span.name.endswith(" ray.remote_worker") and not span.name.startswith("__main__.plain")
    }
    assert shown == {
        "login": (
            "user='zoë', password=***, 1, url=***, pin=***",
            "{'user': 'zoë', 'token': ***, 'given': 2, 'url': ***}",
        ),
        "decorated": ("user='zoë', password=***", "['zoë', True]"),
        "get_token": (None, "***"),
        "calls": ("secret=***", "1"),
        "yields": ("count=2, token=***", None),
        "Client.__init__": ("name='me', credentials=***", "None"),
        "Client.ask": ("question='why', api_key=***", "'me: why'"),
        "Client.wait": ("password=***, seconds=0.5", "0.5"),
        "Client.helper": ("password=***, number=3", "3"),
        "Client.made": ("password=***, number=4", "4"),
    }
    plain = [span for span in spans_in(tmp_path) if span.name == "__main__.plain ray.remote_worker"]
    assert sorted(span.attributes[names.RAY_ARGUMENTS] for span in plain) == [
        "value=<__main__.Hostile>",
        f"value=<bytes of 10>, other={'x' * 100!r}... (1000 characters)",
        "value={'api_key': ***, 'n': 1}, other=[***, 2]",
    ]
    (session,) = sessions() - before
    no_process_is_left(session)
    for path in (*written(tmp_path), *written(session)):
        assert SECRET.encode() not in path.read_bytes(), path


def sessions() -> set[Path]:
    return {folder for folder in Path(support.ray_folder).glob("ray/session_*") if not folder.is_symlink()}


def written(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def test_they_are_not_shown_unless_asked_for(cluster: Cluster) -> None:
    run = cluster.run("arguments")
    assert run.result == RESULTS
    assert not [span for span in run.spans if {names.RAY_ARGUMENTS, names.RAY_RESULT} & span.attributes.keys()]
