"""Settings: what is read, and what is said about what cannot be."""

from __future__ import annotations

import errno
import os
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_tracing_hooks._libraries import LIBRARIES
from ray_tracing_hooks._ray.process import RayProcess
from ray_tracing_hooks._safety.secrets import VARIABLE
from ray_tracing_hooks._settings.otel import HEADERS, PAIRS, TIMEOUT, VARIABLES
from ray_tracing_hooks._settings.table import Settings, all_settings, load, load_with_sources
from ray_tracing_hooks._settings.values import PLACE, SECONDS, SIZE, Kind

PARTS = ["task", "actor", "job", *(library.part for library in LIBRARIES)]
"""The parts of Ray that make spans by default."""

EXPECTED_PARTS = (
    f"expected a comma-separated list of {', '.join(PARTS)}, get, wait, put, a plus sign before it adds to the "
    f"default; or none alone; using {','.join(PARTS)}."
)


def loaded(environ: dict[str, str]) -> Settings:
    """The settings, where nothing is wrong with them."""
    problems: list[str] = []
    settings = load(environ, problems.append)
    assert problems == []
    return settings


def problems_of(environ: dict[str, str]) -> list[str]:
    """What is wrong with the settings."""
    problems: list[str] = []
    load(environ, problems.append)
    return problems


def yaml_file(folder: Path, text: str | bytes) -> dict[str, str]:
    """An environment that names a file with this text."""
    path = folder / "traces.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return {"RAY_TRACING_CONFIG": str(path)}


def test_defaults_are_the_documented_ones() -> None:
    """With nothing set, spans go to files in /tmp/spans, and no limit is left open."""
    settings = loaded({})
    assert settings == Settings()
    assert settings.exporters == ("local",)
    assert settings.local_dir == "/tmp/spans"
    assert settings.spool_max_bytes == 1024**3
    assert settings.local_file_max_bytes == 64 * 1024**2
    assert settings.local_max_bytes == 10 * 1024**3
    assert settings.flush_timeout == 5
    assert settings.ray == set(PARTS)
    assert (settings.root_span, settings.strict) == (True, False)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("exporters", "local, otlp ,,local", ("local", "otlp")),
        ("exporters", "none", ()),
        ("local_dir", " /data/spans/ ", "/data/spans"),
        ("local_dir", "~/spans", os.path.expanduser("~/spans")),
        ("local_dir", "spans", os.path.abspath("spans")),
        ("spool_dir", "/data/with,comma and space", "/data/with,comma and space"),
        ("spool_max_bytes", "1048576", 1024**2),
        ("spool_max_bytes", "1 GiB", 1024**3),
        ("spool_max_bytes", "64MiB", 64 * 1024**2),
        ("spool_max_bytes", "64Mi", 64 * 1024**2),
        ("spool_max_bytes", "500 kB", 500_000),
        ("spool_max_bytes", "1.5 gb", 1_500_000_000),
        ("spool_max_bytes", "9007199254740993", 9007199254740993),
        ("flush_timeout", "0", 0.0),
        ("flush_timeout", "2.5", 2.5),
        ("ray", "actor", frozenset({"actor"})),
        ("ray", "none", frozenset()),
        ("include", "pkg.*, Trainer.step", ("pkg.*", "Trainer.step")),
        ("exclude", "none", ("none",)),
        ("rate_limit", "10", (("*", 10.0),)),
        ("rate_limit", "100, Worker.process = 0.5,mod.*=20", (("Worker.process", 0.5), ("mod.*", 20.0), ("*", 100.0))),
        ("root_span", "off", False),
        ("collect_to", "parquet:/data/runs/", "parquet:/data/runs"),
        ("collect_to", "parquet:s3://b/runs", "parquet:s3://b/runs"),
        ("strict", "TRUE", True),
        ("strict", "yes", True),
    ],
)
def test_a_variable_is_understood(name: str, text: str, value: object) -> None:
    """In each of the ways that people write it."""
    assert getattr(loaded({f"RAY_TRACING_{name.upper()}": text}), name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("EXCLUDE", "a,b\udcff"),
        ("REDACT", "\ud800"),
        ("LOCAL_DIR", "/tmp/\ud800"),
        ("JAEGER_ENDPOINT", "http://h\udcff:1"),
        ("COLLECT_TO", "s3://b/\udcff"),
    ],
)
def test_what_is_no_unicode_is_not_used(name: str, text: str) -> None:
    """Bytes of a variable that are not UTF-8, and halves of characters, which YAML can write."""
    (problem,) = problems_of({f"RAY_TRACING_{name}": text})
    assert problem.startswith(f"RAY_TRACING_{name}")
    assert "is ignored: it is not valid Unicode; expected " in problem
    assert problem.isprintable()


def test_a_path_may_have_any_bytes() -> None:
    """As the system allows it: those that are not UTF-8 too."""
    assert loaded({"RAY_TRACING_LOCAL_DIR": "/tmp/\udcff"}).local_dir == "/tmp/\udcff"


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("FLUSH_TIMEOUT", "soon", "expected a number of seconds from 0 to 1,000,000,000, such as 5; using 5."),
        ("FLUSH_TIMEOUT", "-1", "expected a number of seconds from 0 to 1,000,000,000, such as 5; using 5."),
        ("FLUSH_TIMEOUT", "nan", "expected a number of seconds from 0 to 1,000,000,000, such as 5; using 5."),
        ("UTILIZATION", "1e10", "expected a number of seconds from 0 to 1,000,000,000, such as 5; using no samples."),
        ("FLUSH_TIMEOUT", "inf", "expected a number of seconds from 0 to 1,000,000,000, such as 5; using 5."),
        (
            "SPOOL_MAX_BYTES",
            "1 XiB",
            "expected a size above 0, such as 64 MiB, 500 kB or a number of bytes; using 1 GiB.",
        ),
        (
            "LOCAL_MAX_BYTES",
            "0",
            "expected a size above 0, such as 64 MiB, 500 kB or a number of bytes; using 10 GiB.",
        ),
        ("ROOT_SPAN", "maybe", "expected 1 or 0 (or true, false, yes, no, on, off); using 1."),
        (
            "RAY",
            "task,date",
            EXPECTED_PARTS,
        ),
        (
            "RAY",
            "task,none",
            EXPECTED_PARTS,
        ),
        ("EXPORTERS", ",", "expected a comma-separated list of names, such as local, or none alone; using local."),
        (
            "EXPORTERS",
            "local,none",
            "expected a comma-separated list of names, such as local, or none alone; using local.",
        ),
        ("INCLUDE", " , ", "expected a comma-separated list of patterns, such as mymodule.*,Trainer.step; using none."),
        *(
            (
                "RATE_LIMIT",
                wrong,
                (
                    "expected calls a second above 0, such as 10, or a comma-separated list with patterns, such as "
                    "Worker.process=10,*=1000; using no limit."
                ),
            )
            for wrong in ("0", "fast", "=5", "f=-1", "f=inf", "f=")
        ),
        ("SPOOL_DIR", "a\0b", "expected a path, such as /var/tmp/traces; using Ray's session folder."),
    ],
)
def test_a_wrong_variable_is_reported_and_ignored(variable: str, text: str, problem: str) -> None:
    """With its name, its value, what is expected, and what is used instead."""
    environ = {f"RAY_TRACING_{variable}": text}
    assert problems_of(environ) == [f"RAY_TRACING_{variable}={text!r} is ignored: {problem}"]
    assert load(environ, print) == Settings()


def test_an_empty_variable_is_unset() -> None:
    """Templates of runtime environments and of Kubernetes produce empty strings."""
    for setting in all_settings():
        assert loaded({setting.variable: "  "}) == Settings(), setting.name


def test_a_mistyped_variable_is_reported() -> None:
    """With the one that was meant, or where to look, and without a value that may be secret; others are not ours."""
    assert problems_of({"RAY_TRACING_LOCALDIR": "/hidden", "RAY_TRACING_": "", "RAY_ADDRESS": "auto"}) == [
        "unknown variable RAY_TRACING_LOCALDIR is ignored; did you mean RAY_TRACING_LOCAL_DIR?"
    ]
    assert problems_of({"RAY_TRACING_QUUX": "1"}) == [
        "unknown variable RAY_TRACING_QUUX is ignored; `ray-tracing-hooks config` lists all settings."
    ]


def test_variables_that_kubernetes_makes_for_a_service_are_no_settings() -> None:
    """As for the head of a RayCluster that is called ray-tracing. Without such a service they are mistakes."""
    service = {
        "RAY_TRACING_HEAD_SVC_SERVICE_HOST": "10.0.0.1",
        "RAY_TRACING_HEAD_SVC_SERVICE_PORT": "6379",
        "RAY_TRACING_HEAD_SVC_SERVICE_PORT_CLIENT": "10001",
        "RAY_TRACING_HEAD_SVC_PORT": "tcp://10.0.0.1:6379",
        "RAY_TRACING_HEAD_SVC_PORT_6379_TCP": "tcp://10.0.0.1:6379",
        "RAY_TRACING_HEAD_SVC_PORT_6379_TCP_ADDR": "10.0.0.1",
    }
    assert problems_of(service) == []
    del service["RAY_TRACING_HEAD_SVC_SERVICE_HOST"]
    assert len(problems_of(service)) == len(service)
    assert len(problems_of({"RAY_TRACING_JAEGER_PORT": "1"})) == 1


def test_a_file_gives_every_setting_and_a_variable_wins(tmp_path: Path) -> None:
    """Keys of the file are the variables without RAY_TRACING_, in lower case; values may be what YAML calls them."""
    environ = yaml_file(
        tmp_path,
        """
        exporters: [local, otlp]
        local_dir: /data/spans
        local_file_max_bytes: 1_000_000
        local_max_bytes: 2 GiB
        spool_dir: ~
        flush_timeout: 2
        ray: task
        include: [a.*, "b,c"]
        exclude: []
        root_span: no
        strict: on
        """,
    )
    settings, sources = load_with_sources({**environ, "RAY_TRACING_FLUSH_TIMEOUT": "7"}, pytest.fail)
    path = environ["RAY_TRACING_CONFIG"]
    assert settings == Settings(
        config=path,
        exporters=("local", "otlp"),
        local_dir="/data/spans",
        local_file_max_bytes=1_000_000,
        local_max_bytes=2 * 1024**3,
        flush_timeout=7,
        ray=frozenset({"task"}),
        include=("a.*", "b,c"),
        root_span=False,
        strict=True,
    )
    assert sources["flush_timeout"] == "RAY_TRACING_FLUSH_TIMEOUT"
    assert sources["local_dir"] == path
    assert sources["spool_dir"] == "default"
    assert sources["config"] == "RAY_TRACING_CONFIG"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("local_dirr: /x", "{file}: unknown setting 'local_dirr' is ignored; did you mean 'local_dir'?"),
        ("LOCAL_DIR: /x", "{file}: unknown setting 'LOCAL_DIR' is ignored; did you mean 'local_dir'?"),
        ("7: x", "{file}: unknown setting 7 is ignored; `ray-tracing-hooks config` lists all settings."),
        (
            "config: /x",
            "{file}: unknown setting 'config' is ignored; `ray-tracing-hooks config` lists all settings.",
        ),
        (
            "local_dir: 5",
            "{file}: local_dir=5 is ignored: expected a path, such as /var/tmp/traces, or session; using /tmp/spans.",
        ),
        (
            "local_dir: [/a, /b]",
            (
                "{file}: local_dir=['/a', '/b'] is ignored: expected a path, such as /var/tmp/traces, or session; "
                "using /tmp/spans."
            ),
        ),
        (
            "flush_timeout: true",
            (
                "{file}: flush_timeout=True is ignored: expected a number of seconds from 0 to 1,000,000,000, "
                "such as 5; using 5."
            ),
        ),
        (
            "spool_max_bytes: true",
            (
                "{file}: spool_max_bytes=True is ignored: expected a size above 0, such as 64 MiB, 500 kB or a number "
                "of bytes; using 1 GiB."
            ),
        ),
        (
            "ray: {task: 1}",
            "{file}: ray={{'task': 1}} is ignored: " + EXPECTED_PARTS,
        ),
        (
            "include: [[a]]",
            (
                "{file}: include=[['a']] is ignored: expected a comma-separated list of patterns, such as mymodule.*,"
                "Trainer.step; using none."
            ),
        ),
        (
            "- local_dir",
            (
                "RAY_TRACING_CONFIG='{file}' is ignored: expected settings and their values, such as "
                "'local_dir: /data/spans', but the file holds a list; using the variables and defaults."
            ),
        ),
    ],
)
def test_a_wrong_file_is_reported_and_ignored(tmp_path: Path, text: str, problem: str) -> None:
    """With the file, the key, the value, what is expected, and what is used instead."""
    environ = yaml_file(tmp_path, text)
    assert problems_of(environ) == [problem.format(file=environ["RAY_TRACING_CONFIG"])]
    assert load(environ, lambda _: None) == Settings(config=environ["RAY_TRACING_CONFIG"])


@pytest.mark.parametrize(
    "text",
    [b"a: b: c", b"\x00", b"\xff\xfe\xff", b"day: 2001-99-99", b"x: !!python/name:os.system", b"[" * 1000],
    ids=["syntax", "nul", "bytes", "date", "tag", "deep"],
)
def test_a_file_that_is_not_yaml_is_reported(tmp_path: Path, text: bytes) -> None:
    """With the place in the file where YAML stopped, and the other settings hold."""
    environ = {**yaml_file(tmp_path, text), "RAY_TRACING_FLUSH_TIMEOUT": "7"}
    (problem,) = problems_of(environ)
    assert problem.startswith(
        f"RAY_TRACING_CONFIG='{environ['RAY_TRACING_CONFIG']}' is ignored: the file is not valid YAML ("
    )
    assert problem.endswith("); using the variables and defaults.")
    assert load(environ, lambda _: None).flush_timeout == 7


@pytest.mark.parametrize("text", ["x: &a [*a]", "strict: &a [*a, *a]", "0x" + "f" * 9000, "? [a, b]\n: c"])
def test_a_hostile_file_is_survived(tmp_path: Path, text: str) -> None:
    """A value that contains itself, or a number of ten thousand digits, costs a short sentence."""
    (problem,) = problems_of(yaml_file(tmp_path, text))
    assert len(problem) < 500 + len(str(tmp_path))


def test_a_file_that_is_missing_is_reported(tmp_path: Path) -> None:
    """With the reason of the operating system."""
    assert problems_of({"RAY_TRACING_CONFIG": f"{tmp_path}/no.yaml"}) == [
        (
            f"RAY_TRACING_CONFIG='{tmp_path}/no.yaml' is ignored: the file cannot be read (No such file or directory); "
            "using the variables and defaults."
        )
    ]


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}"])
def test_an_empty_file_sets_nothing(tmp_path: Path, text: str) -> None:
    """And is no mistake."""
    environ = yaml_file(tmp_path, text)
    assert loaded(environ) == Settings(config=environ["RAY_TRACING_CONFIG"])


def test_a_wrong_variable_falls_back_to_the_file(tmp_path: Path) -> None:
    """Each wrong value is reported, and the next source counts."""
    environ = {**yaml_file(tmp_path, "flush_timeout: 3"), "RAY_TRACING_FLUSH_TIMEOUT": "soon"}
    (problem,) = problems_of(environ)
    assert problem.startswith("RAY_TRACING_FLUSH_TIMEOUT='soon' is ignored")
    assert problem.endswith("; using 3.")


def test_a_relative_path_in_a_folder_that_is_gone_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory of a worker may be removed under it."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    (problem,) = problems_of({"RAY_TRACING_LOCAL_DIR": "spans"})
    assert problem.endswith("expected a path, such as /var/tmp/traces, or session; using /tmp/spans.")


def test_the_folder_of_files_may_be_that_of_the_session() -> None:
    """Where Ray runs with another folder for sessions, its environment says so."""
    settings = loaded({"RAY_TRACING_LOCAL_DIR": " session"})
    assert settings.local_dir == "session"
    assert settings.in_session("/data/ray/session_1").local_dir == "/data/ray/session_1/logs/spans"
    elsewhere = loaded({"RAY_TRACING_LOCAL_DIR": "/data/session"})
    assert elsewhere.in_session("/data/ray/session_1").local_dir == "/data/session"


@pytest.mark.parametrize(
    ("variables", "folder"),
    [({}, "/tmp"), ({"TMPDIR": "/a"}, "/a"), ({"TMPDIR": "/a", "RAY_TMPDIR": "/b"}, "/b")],
)
def test_the_newest_session_is_where_ray_has_its_sessions(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMPDIR", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    in_session = loaded({"RAY_TRACING_LOCAL_DIR": "session"}).in_session()
    assert in_session.local_dir == f"{folder}/ray/session_latest/logs/spans"


def test_relative_paths_are_relative_to_where_ray_was_started(tmp_path: Path) -> None:
    """That of the file itself, and those in it. Where that is cannot be told: the working directory, and it is said."""
    (tmp_path / "settings.yaml").write_text("local_dir: spans\nspool_dir: /spool")
    environ = {"RAY_TRACING_CONFIG": "settings.yaml"}
    settings = load(environ, pytest.fail, lambda: str(tmp_path))
    assert settings == Settings(
        config=str(tmp_path / "settings.yaml"), local_dir=str(tmp_path / "spans"), spool_dir="/spool"
    )

    def gone() -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    problems: list[str] = []
    settings = load({"RAY_TRACING_LOCAL_DIR": "spans", "RAY_TRACING_SPOOL_DIR": "~/x"}, problems.append, gone)
    assert settings == Settings(local_dir=os.path.abspath("spans"), spool_dir=os.path.expanduser("~/x"))
    (problem,) = problems
    assert problem == (
        "RAY_TRACING_LOCAL_DIR='spans' is relative to the folder in which Ray was started, which cannot be found "
        "(Permission denied): the working directory of this process is used; give an absolute path."
    )


def test_where_ray_was_started_is_not_asked_of_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another container, the pid of the raylet belongs to another process or none."""
    process = RayProcess(1, "", "", "", "", "", "", "", "", "", owns_cluster=False, ray_version="", worker=None)
    program = "import sys; open('/proc/self/comm', 'w').write(sys.argv[1]); print(flush=True); sys.stdin.read()"
    for name in ("other", "raylet"):
        with subprocess.Popen(
            [sys.executable, "-c", program, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
        ) as other:
            assert other.stdout is not None
            other.stdout.readline()
            monkeypatch.setenv("RAY_RAYLET_PID", str(other.pid))
            if name == "raylet":
                assert process.start_directory() == str(tmp_path)
            else:
                with pytest.raises(ProcessLookupError):
                    process.start_directory()
            other.communicate()


@given(st.dictionaries(st.sampled_from([setting.variable for setting in all_settings()]), st.text(max_size=20)))
def test_no_text_makes_loading_fail(environ: dict[str, str]) -> None:
    """Whatever the variables hold, the settings are right ones."""
    environ.pop("RAY_TRACING_CONFIG", None)
    settings = load(environ, lambda _: None)
    assert settings.flush_timeout >= 0
    assert settings.spool_max_bytes > 0


WRITTEN: dict[Kind[Any], st.SearchStrategy[Any]] = {
    SIZE: st.integers(min_value=1, max_value=2**63),
    SECONDS: st.floats(min_value=0, max_value=1e9),
    TIMEOUT: st.floats(min_value=0, max_value=500, exclude_min=True) | st.integers(min_value=500, max_value=10**5),
    PAIRS: st.dictionaries(st.text(min_size=1), st.text()),
    HEADERS: st.dictionaries(st.from_regex("[a-z-]+", fullmatch=True), st.text(string.printable[:95])),
}


@given(st.data())
@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.expected[:20])
def test_a_value_reads_as_it_is_written(kind: Kind[Any], data: st.DataObject) -> None:
    """What `config` prints can be given back, and a sink's settings reach the shipper as texts."""
    value = data.draw(WRITTEN[kind])
    assert kind.read(kind.write(value)) == value if value != {} else not kind.write(value)


def test_a_secret_setting_has_a_name_by_which_logs_hide_it() -> None:
    """URLs are hidden by their form."""
    rows = [(row.variable, row) for row in all_settings()] + [(row.name, row) for row in VARIABLES]
    secret = [name for name, row in rows if row.secret and row.kind is not PLACE and not name.endswith("ENDPOINT")]
    assert secret
    assert [name for name in secret if not VARIABLE.search(name)] == []


def test_settings_cannot_be_changed() -> None:
    """They are read once and handed down."""
    with pytest.raises(AttributeError):
        Settings().strict = True
