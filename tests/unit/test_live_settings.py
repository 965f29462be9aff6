"""Settings for running processes: what can be changed, and what a command says of the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from ray_tracing_hooks._cli import changing, main
from ray_tracing_hooks._connection.changes import control_folder
from ray_tracing_hooks._control.control import Control, locked
from ray_tracing_hooks._ops import change_on_node
from ray_tracing_hooks._ops.change import (
    ControlError,
    Outcome,
    SettingsChange,
    change,
    names_of,
    shown,
    variables_of,
)
from ray_tracing_hooks._ops.cluster import Answer, Node
from ray_tracing_hooks._ops.hooks import HOOKS
from ray_tracing_hooks._ray.cluster import CONTROL, HOOK
from ray_tracing_hooks._safety.guard import SettingError
from ray_tracing_hooks._settings.table import LIVE, all_settings


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("RAY_TRACING_EXCLUDE=a.*,b", {"RAY_TRACING_EXCLUDE": "a.*,b"}),
        ("exclude=a.*,b", {"RAY_TRACING_EXCLUDE": "a.*,b"}),
        ("exclude=", {"RAY_TRACING_EXCLUDE": ""}),
        ("rate_limit=Worker.process=10,*=1000", {"RAY_TRACING_RATE_LIMIT": "Worker.process=10,*=1000"}),
        ("OTEL_TRACES_SAMPLER=parentbased_traceidratio", {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}),
        ("OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=b", {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=b"}),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE=/only/there.pem", {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/only/there.pem"}),
        ("exporters=local,otlp", {"RAY_TRACING_EXPORTERS": "local,otlp"}),
        ("keep_errors=1", {"RAY_TRACING_KEEP_ERRORS": "1"}),
        ("KEY", {}),
    ],
)
def test_a_setting_is_understood(given: str, found: dict[str, str]) -> None:
    """As a variable, or as in the YAML file."""
    if found:
        assert variables_of([given], {}) == found
    else:
        assert variables_of(["OTEL_EXPORTER_OTLP_HEADERS"], {"OTEL_EXPORTER_OTLP_HEADERS": "key=1"}) == {
            "OTEL_EXPORTER_OTLP_HEADERS": "key=1"
        }


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("strict=1", "RAY_TRACING_STRICT cannot be changed while processes run"),
        ("RAY_TRACING_RAY=task", "RAY_TRACING_RAY cannot be changed while processes run"),
        ("OTEL_PROPAGATORS=b3", "OTEL_PROPAGATORS cannot be changed while processes run"),
        ("exclud=a", "there is no setting 'exclud'; did you mean exclude?"),
        ("OTEL_TRACES_SAMPLERS=a", "did you mean OTEL_TRACES_SAMPLER?"),
        ("rate_limit=fast", "RAY_TRACING_RATE_LIMIT='fast' is not valid: expected calls a second above 0"),
        ("OTEL_TRACES_SAMPLER=sometimes", "OTEL_TRACES_SAMPLER='sometimes' is not valid: expected one of always_on"),
        ("OTEL_TRACES_SAMPLER_ARG=2", "OTEL_TRACES_SAMPLER_ARG='2' is not valid: expected a number from 0 to 1"),
        ("OTEL_EXPORTER_OTLP_HEADERS=se cret", "OTEL_EXPORTER_OTLP_HEADERS is not valid: expected name=value pairs"),
        ("exporters=skywalking", "the exporter skywalking cannot be added while processes run"),
        ("exporters=none", "`ray-tracing-hooks disable` records nothing"),
        ("exclude", "exclude has no value: write exclude=VALUE, or set RAY_TRACING_EXCLUDE in this shell"),
        ("exclude=a\udcff", "RAY_TRACING_EXCLUDE is not valid: its value is not text in UTF-8"),
        ("local_dir=/tmp/\udcff", "RAY_TRACING_LOCAL_DIR is not valid: its value is not text in UTF-8"),
        ("OTEL_EXPORTER_OTLP_HEADERS=a=\udcff", "OTEL_EXPORTER_OTLP_HEADERS is not valid: its value is not text in"),
        ("exclude\udcff=a", "there is no setting"),
    ],
)
def test_what_cannot_be_set_is_wrong_usage(given: str, problem: str) -> None:
    """Before anything connects to a cluster; secrets are not repeated."""
    with pytest.raises(SettingError) as raised:
        variables_of([given], {})
    assert problem in str(raised.value)
    assert "se cret" not in str(raised.value)
    done = CliRunner().invoke(main, ["configure", given, "--address", "127.0.0.1:1"])
    assert done.exit_code == 2
    assert problem.partition("'")[0] in done.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["exclude=a", "RAY_TRACING_EXCLUDE=b"], "RAY_TRACING_EXCLUDE is given twice, with different values"),
        (["exclude=a", "--unset", "exclude"], "RAY_TRACING_EXCLUDE cannot be set and unset at once"),
    ],
)
def test_contradictions_are_wrong_usage(words: list[str], problem: str) -> None:
    done = CliRunner().invoke(main, ["configure", *words, "--address", "127.0.0.1:1"])
    assert done.exit_code == 2
    assert problem in " ".join(done.output.split())


def test_a_value_of_this_shell_must_be_text_too() -> None:
    with pytest.raises(SettingError, match="RAY_TRACING_EXCLUDE is not valid: its value is not text in UTF-8"):
        variables_of(["exclude"], {"RAY_TRACING_EXCLUDE": "\udcff"})


@pytest.mark.parametrize("address", ["h\udcff:6379", "ray://h\udcff:10001"])
def test_an_address_that_is_no_text_is_wrong_usage(address: str) -> None:
    done = CliRunner().invoke(main, ["status", "--address", address])
    assert done.exit_code == 2
    assert "is not the address of a cluster's head: expected HOST:PORT" in " ".join(done.output.split())


def test_what_a_name_stands_for_can_be_unset() -> None:
    assert names_of(["exclude", "OTEL_TRACES_SAMPLER"]) == ["RAY_TRACING_EXCLUDE", "OTEL_TRACES_SAMPLER"]
    with pytest.raises(SettingError):
        names_of(["excluded"])


def test_secrets_are_not_shown() -> None:
    """Hosts and the names of headers are, as in other commands."""
    variables = {
        "OTEL_EXPORTER_OTLP_HEADERS": "key=1,authorization=Bearer%20x",
        "RAY_TRACING_EXCLUDE": "a",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://me:secret@colector:4317/v1?key=1",
        "RAY_TRACING_SOMETHING": "of another version",
    }
    assert shown(variables) == {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://********@colector:4317/v1?********",
        "OTEL_EXPORTER_OTLP_HEADERS": "key=********,authorization=********",
        "RAY_TRACING_SOMETHING": "********",
        "RAY_TRACING_EXCLUDE": "a",
    }


def test_every_setting_that_can_be_changed_exists() -> None:
    assert {setting.name for setting in all_settings()} >= LIVE


def test_changes_add_up() -> None:
    """Until they are unset or reset."""
    first = SettingsChange(enabled=False, variables={"A": "1", "B": "2"}).after(Control())
    assert (first.version, first.enabled, first.variables) == (1, False, {"A": "1", "B": "2"})
    second = SettingsChange(variables={"A": None, "C": "3"}).after(first)
    assert (second.version, second.enabled, second.variables) == (2, False, {"B": "2", "C": "3"})
    third = SettingsChange(reset=True, variables={"D": "4"}).after(second)
    assert (third.version, third.enabled, third.variables) == (3, None, {"D": "4"})


def test_what_is_off_for_a_time_stays_so_until_another_command() -> None:
    """A change of other settings is none."""
    off = SettingsChange(enabled=False, until=2e9).after(Control())
    assert (off.enabled, off.until) == (False, 2e9)
    other = SettingsChange(variables={"A": "1"}).after(off)
    assert (other.enabled, other.until) == (False, 2e9)
    for ends in (SettingsChange(enabled=True), SettingsChange(enabled=False), SettingsChange(reset=True)):
        assert ends.after(other).until is None


def test_the_command_says_when_spans_are_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[SettingsChange] = []
    monkeypatch.setattr(changing, "run", lambda _context, change, *_, **_options: wanted.append(change))
    before = time.time()
    for arguments in (["--for", "1h"], []):
        assert CliRunner().invoke(main, ["disable", *arguments]).exit_code == 0
    for_an_hour, for_good = wanted
    assert for_an_hour.until is not None
    assert before + 3600 <= for_an_hour.until <= time.time() + 3600
    assert for_good == SettingsChange(enabled=False)
    for wrong in ("soon", "30", "10ms", "1000000h"):
        result = CliRunner().invoke(main, ["disable", "--for", wrong])
        assert (result.exit_code, len(wanted)) == (2, 2)
        assert "such as" in result.output


SETUP = HOOKS[0]
HEAD = Node("id", "head", "127.0.0.1", is_head=True)


class Head:
    """The visit of a cluster of one node, which has a key-value store of its own, a hook and no processes."""

    nodes = (HEAD,)

    def __init__(self, monkeypatch: pytest.MonkeyPatch, session_dir: Path) -> None:
        self.values: dict[bytes, bytes] = {HOOK: SETUP.encode()}
        self.before_storing: list[Callable[[], object]] = []
        node = SimpleNamespace(get_session_dir_path=lambda: str(session_dir))
        monkeypatch.setattr(change_on_node, "_worker", lambda: SimpleNamespace(gcs_client=self, node=node))
        monkeypatch.setattr(change_on_node, "processes", list)

    def internal_kv_put(self, key: bytes, value: bytes, *_: object) -> None:
        self.values[key] = value

    def internal_kv_get(self, key: bytes, *_: object) -> bytes | None:
        return self.values.get(key)

    def internal_kv_multi_get(self, keys: list[bytes], *_: object) -> dict[bytes, bytes]:
        return {key: self.values[key] for key in keys if key in self.values}

    def internal_kv_del(self, key: bytes, *_: object) -> None:
        self.values.pop(key, None)

    def ask(self, _node: Node, function: Callable[..., Any], *arguments: Any) -> Answer:
        while self.before_storing and function is change_on_node.store:
            self.before_storing.pop()()
        try:
            return Answer(function(*arguments))
        except OSError as error:
            return Answer(failure="failed", text=str(error))

    def answer(self, answer: Answer, _timeout: float) -> Answer:
        return answer

    def call(self, function: Callable[..., Any], *arguments: Any, timeout: float) -> dict[Node, Answer]:
        return {HEAD: self.ask(HEAD, function, *arguments)}

    def outcome(self, wanted: SettingsChange, timeout: float = 30.0) -> Outcome:
        visit: Any = self
        return change(visit, wanted, timeout, lambda *_: None)

    def change(self, wanted: SettingsChange) -> Control:
        return self.outcome(wanted).control

    def set(self, **variables: str | None) -> Control:
        return self.change(SettingsChange(variables=variables))


def test_two_commands_at_the_same_time_both_have_their_effect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One of them begins again, with what the other one has set."""
    head = Head(monkeypatch, tmp_path)
    head.set(RAY_TRACING_EXCLUDE="a")
    head.before_storing.append(lambda: head.set(RAY_TRACING_INCLUDE="b"))
    last = head.set(RAY_TRACING_RATE_LIMIT="1")
    assert Control.decode(head.values[CONTROL]) == last
    assert last.version == 3
    assert sorted(last.variables) == ["RAY_TRACING_EXCLUDE", "RAY_TRACING_INCLUDE", "RAY_TRACING_RATE_LIMIT"]


ENABLE, DISABLE = SettingsChange(enabled=True, hook=SETUP), SettingsChange(enabled=False)


@pytest.mark.parametrize(("last", "hook"), [(ENABLE, SETUP.encode()), (DISABLE, None)])
def test_the_hook_is_that_of_the_later_of_two_commands_at_the_same_time(
    last: SettingsChange, hook: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One of them enables the cluster with a hook, and the other one removes it again."""
    head = Head(monkeypatch, tmp_path)
    del head.values[HOOK]
    head.change(ENABLE)
    if last is DISABLE:
        head.before_storing = [lambda: [head.change(each) for each in (DISABLE, ENABLE)]]
    else:
        head.before_storing = [lambda: head.change(DISABLE)]
    outcome = head.outcome(last)
    assert outcome.control.enabled is last.enabled
    assert (outcome.hook or "").encode() == (hook or b"")
    assert head.values.get(HOOK) == hook


def test_a_hook_that_two_commands_set_at_the_same_time_is_removed_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    head = Head(monkeypatch, tmp_path)
    del head.values[HOOK]
    head.before_storing.append(lambda: head.change(ENABLE))
    assert head.outcome(ENABLE).is_hook_late
    assert head.outcome(DISABLE).hook is None
    assert HOOK not in head.values


def test_a_hook_from_the_start_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    head = Head(monkeypatch, tmp_path)
    outcome = head.outcome(DISABLE)
    assert (outcome.hook, outcome.is_hook_late, head.values[HOOK]) == (SETUP, False, SETUP.encode())


def test_a_command_waits_while_another_one_stores_its_change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For less time than it may take."""
    head = Head(monkeypatch, tmp_path)
    head.set(RAY_TRACING_EXCLUDE="a")
    began = time.monotonic()
    with (
        locked(str(control_folder(str(tmp_path))), time.monotonic()),
        pytest.raises(ControlError, match="does not finish; `ray-tracing-hooks status` shows what is set now"),
    ):
        head.outcome(SettingsChange(variables={"RAY_TRACING_EXCLUDE": "b"}), timeout=2)
    assert time.monotonic() - began < 2
    assert head.set(RAY_TRACING_INCLUDE="c").variables == {"RAY_TRACING_EXCLUDE": "a", "RAY_TRACING_INCLUDE": "c"}


def test_a_cluster_whose_head_has_no_folder_can_be_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The head's processes cannot learn of it, and the command says so."""
    session = tmp_path / "a file"
    session.touch()
    head = Head(monkeypatch, session)
    outcome = head.outcome(DISABLE)
    assert Control.decode(head.values[CONTROL]) == outcome.control == Control(1, enabled=False)
    assert outcome.nodes == {HEAD: "the folder of this package in Ray's session folder cannot be used"}


def test_an_error_says_that_the_change_is_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    head = Head(monkeypatch, tmp_path)

    def fails() -> None:
        raise OSError("no answer")

    monkeypatch.setattr(change_on_node, "processes", fails)
    with pytest.raises(ControlError, match="head: no answer; the change is set, but processes that run may not have"):
        head.change(DISABLE)
    assert Control.decode(head.values[CONTROL]).enabled is False


def test_values_that_are_no_longer_set_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They may be secrets."""
    head = Head(monkeypatch, tmp_path)
    head.set(OTEL_EXPORTER_OTLP_HEADERS="key=secret")
    head.set(OTEL_EXPORTER_OTLP_HEADERS=None)
    assert b"secret" not in b"".join(head.values.values())


@pytest.mark.parametrize("text", [b"{", b'{"version": "1"}', b"\xff"])
def test_what_cannot_be_understood_can_be_reset(text: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only that, since nobody knows what would be lost."""
    head = Head(monkeypatch, tmp_path)
    head.set(RAY_TRACING_EXCLUDE="a")
    head.values[CONTROL] = text
    with pytest.raises(ControlError, match="`ray-tracing-hooks configure --reset` removes it"):
        head.set(RAY_TRACING_EXCLUDE="b")
    reset = head.change(SettingsChange(reset=True))
    assert reset.version > time.time() - 60  # later than any version before
    assert head.set(RAY_TRACING_EXCLUDE="b").version == reset.version + 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["configure"], "nothing to change"),
        (["enable", "--hook", "my:hook"], "'my:hook' is not one of ray_tracing_hooks:setup"),
        (["disable", "exclude=a"], "unexpected extra argument"),
    ],
)
def test_wrong_usage_ends_with_exit_code_2(words: list[str], problem: str) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert problem in done.output
