"""Arguments as text: short, without secrets, and without running code of the user."""

from __future__ import annotations

import time
from collections import OrderedDict
from enum import Enum
from typing import Any

import numpy as np
import pytest

from ray_tracing_hooks._ray.arguments import _parameters
from ray_tracing_hooks._record.argument_text import MASK, MOST_CHARACTERS, Redactor


def show(value: Any, name: str = "value", *patterns: str) -> str:
    """How the one argument of a call is shown."""
    name, _, shown = Redactor(patterns).arguments([name], [value], {}).partition("=")
    return shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (True, "True"),
        (3, "3"),
        (-1.5, "-1.5"),
        ("it's", '"it\'s"'),
        (b"bytes", "<bytes of 5>"),
        ([1, "a", (2,)], "[1, 'a', (2)]"),
        ({"a": {1: [None]}}, "{'a': {1: [None]}}"),
        (set(), "set()"),
        (frozenset({1}), "frozenset(1)"),
        ([], "[]"),
        (..., "Ellipsis"),
        (1 << 400, "<int of 401 bits>"),
        ("x" * 1000, f"{'x' * 100!r}... (1000 characters)"),
        (list(range(1000)), "[0, 1, 2, 3, 4, 5, 6, 7, ... (1000 items)]"),
        ([[[[1]]]], "[[[<list of 1>]]]"),
        (np.zeros((3, 4)), "<numpy.ndarray float64 (3, 4)>"),
        (OrderedDict(a=1), "<collections.OrderedDict>"),
        (time.sleep, "<builtins.builtin_function_or_method>"),
    ],
)
def test_values_of_pythons_own_types_are_shown_and_of_others_the_class(value: object, shown: str) -> None:
    assert show(value) == shown


def test_a_call_is_shown_with_the_names_of_its_parameters() -> None:
    redactor = Redactor()
    assert redactor.arguments(["path", "*more"], ["file", 1, 2], {"retries": 3}) == "path='file', 1, 2, retries=3"
    assert redactor.arguments([], [1], {}) == "1"
    assert redactor.arguments([], [], {}) == ""


def test_names_of_parameters_are_found_behind_decorators() -> None:
    import functools

    def login(user: str, password: str, /, realm: str = "", *others: str, strict: bool = False) -> None:
        del user, password, realm, others, strict

    @functools.wraps(login)
    def decorated(*args: Any, **kwargs: Any) -> None:
        return login(*args, **kwargs)

    assert _parameters(login) == _parameters(decorated) == ("user", "password", "realm", "*others")
    assert _parameters(print) == ()

    @functools.wraps(login)
    def with_token(token: str, *args: Any) -> None:
        return login(*args)

    assert _parameters(with_token) == ("token", "password", "realm", "*others"), "the decorator's own come first"
    vars(with_token)["__wrapped__"] = with_token
    assert _parameters(with_token) == ("token", "*args")


SECRET_NAMES = [
    *("password", "db_passwd", "PassPhrase", "pwd", "secret", "client_secret", "token", "hf_token", "accessToken"),
    *("credentials", "api_key", "apikey", "APIKEY", "aws_access_key_id", "private_key", "auth", "authorization"),
    *("bearer", "cookie", "session_id", "jwt", "pin", "otp", "ssn", "dsn", "card_number", "cvv", "iban", "webhook_url"),
    *("account_key", "sas_url", "key", "connection_string", "pass"),
    *("X-API-Key", "x-api-key", "private-key", "db.pass", "dbPass", "db pw", "encryptionKey", "creds", "GITHUB_PAT"),
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_what_is_called_a_secret_is_not_shown(name: str) -> None:
    """As a parameter, by position and by name; as a key at any level; as a function's name, for its result."""
    redactor = Redactor()
    assert redactor.arguments([name], ["hunter2"], {name: ["hunter2"]}) == f"{name}={MASK}, {name}={MASK}"
    assert "hunter2" not in redactor.arguments(["config"], [[{"a": {name: {"b": "hunter2"}}}]], {})
    assert redactor.result(f"get_{name}", "hunter2") == MASK


@pytest.mark.parametrize(
    "value",
    [
        [("id", 1), ("password", "hunter2")],
        ["mysql", "--password", "hunter2", "-v"],
        {"name": "DB_PASSWORD", "value": "hunter2"},
        {b"password": "hunter2"},
        {("db", "password"): "hunter2"},
        {"x" * 1000 + "_password": "hunter2"},
    ],
)
def test_what_stands_behind_the_name_of_a_secret_is_not_shown(value: Any) -> None:
    assert "hunter2" not in show(value)
    assert MASK in show(value)
    assert show(["mysql", "--verbose", "hunter2"]).endswith("'hunter2']")
    assert Redactor().arguments(["key", "value"], ["db_password", "hunter2"], {}) == f"key={MASK}, value={MASK}"
    assert Redactor().arguments([], ["db_password", "hunter2", 3], {}) == f"'db_password', {MASK}, 3"


SECRET_TEXTS = [
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
    "postgres://user:hunter2@db/x",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.SflKxw",
    "AKIAIOSFODNN7EXAMPLE",
    "sk-proj-abcdefghijklmnop",
    "sk_live_abcdefghijklmnop",
    "ghp_abcdefghijklmnopqrst",
    "github_pat_11ABCDEFGHIJKLMNOP",
    "glpat-abcdefghijklmnopqrst",
    "xoxb-123456789-abcdef",
    "hf_abcdefghijklmnopqrst",
    "AIzaSyA-abcdefghijklmnopqrstu",
    "Authorization: Bearer abcdefghij",
    "curl -H 'Authorization: Basic dXNlcjpwYXNz'",
    "AccountName=x;AccountKey=abc==",
    '{"password": "hunter2"}',
    "user=x password=hunter2",
    "https://x.blob.core.windows.net/c?sv=1&sig=abc",
    "https://0123456789abcdef@sentry.example/1",
    "postgres://user:hun/ter2@db/x",
    "https://hooks.slack.com/services/T0/B0/abc",
    "https://maps.example/x?q=1&key=abc",
    "dapi0123456789abcdef0123456789abcdef",
    "hvs.abcdefghijklmnopqrst",
    "xapp-1-A0-123-abcdef",
    "X-API-Key: abc",
    "Cookie: sid=abc",
    "Authorization: Digest abc",
    "DB_PASS=hunter2",
    '{\\"password\\": \\"hunter2\\"}',
    "mysql --password hunter2",
]


@pytest.mark.parametrize(
    "text",
    [
        *("://" + ":" * 5000, "eyJ-" * 2000, "://a:" * 2000, "://a" * 2000, "Bearer" + " " * 5000, "bearer " * 2000),
        *(
            "pwd" + " " * 5000,
            "pwd'" * 2000,
            "pwd\\" * 2000,
            "pwd ",
            " --" + "-" * 5000,
            " --a" * 2000,
            " -pwd " * 2000,
        ),
        *("a" * 5000, "_" * 5000, "aB" * 5000, "?key" * 2000, "account-" * 2000, "session" * 2000, "sk_" * 2000),
    ],
)
def test_no_text_takes_long_to_look_through(text: str) -> None:
    """Neither as a value nor as a name, of which a call may show a hundred."""
    redactor = Redactor(["*a*a*a*b", "?*?*?*?*c"])
    taken = []
    for number in range(3):
        before = time.process_time()
        redactor.arguments([], [text, {f"{number}{text}" * 1000: 1}], {})
        taken.append(time.process_time() - before)
    assert min(taken) < 0.04


@pytest.mark.parametrize("text", SECRET_TEXTS)
def test_what_looks_like_a_secret_is_not_shown(text: str) -> None:
    """Alone, amid other text, as a key, and where the end of it would be cut off."""
    assert show(text) == MASK
    assert show(f"some text, then {text}") == MASK
    assert show(f"it_is={text}") == show(f"it_is_{text}") == MASK
    assert show({text: 1}).startswith(f"{{{MASK}: ")
    assert show([("a", text)]) == f"[('a', {MASK})]"
    assert show("." * 90 + f" {text}" + "." * 5000) == MASK


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("max_tokens", 100), ("num_tokens", 7), ("tokenizer", "bert"), ("token_count", 3), ("author", "me")),
        *(("passenger", "p"), ("keys_only", 1), ("monkey", "m"), ("compass", "n"), ("spinner", 1), ("hotpath", "h")),
        *(("path", "s3://bucket/key"), ("url", "http://host:8080/x"), ("text", "the password is not here")),
        *(("url", "http://host/a@b"), ("design", "design: round"), ("line", "run --max-tokens 5"), ("partKeys", 1)),
        ("digest", "0123456789abcdef" * 2),
    ],
)
def test_what_only_resembles_a_secret_is_shown(name: str, value: object) -> None:
    assert show(value, name) == repr(value)


def test_patterns_of_the_user_hide_names_keys_and_texts() -> None:
    assert show("x", "Phone", "*phone*") == MASK
    assert show({"home_phone": "x", "b": 1}, "v", "*phone*") == f"{{{MASK}: {MASK}, 'b': 1}}"
    assert show(["a@example.com", "b"], "v", "*@example.com") == f"[{MASK}, 'b']"
    assert show("a\nb@example.com", "v", "*@example.com") == MASK


def test_no_code_of_the_user_is_run() -> None:
    def refuse(*_args: object, **_kwargs: object) -> Any:
        raise AssertionError("this is code of the user")

    class Meta(type):
        __hash__ = __eq__ = __getattribute__ = __instancecheck__ = refuse

    hostile: dict[str, Any] = dict.fromkeys(
        ("__repr__", "__str__", "__hash__", "__eq__", "__len__", "__iter__", "__getattribute__", "__format__"), refuse
    )
    odd = type.__call__(Meta, "Odd", (), {**hostile, "__module__": 3})
    assert show([object.__new__(odd)]) == "[<Odd>]"
    hostile["__class__"] = property(refuse)
    for base in (object, list, str, int, dict):
        kind = type("Hostile", (base,), hostile)
        assert show([base.__new__(kind)]).endswith("Hostile>]")

    class Colour(Enum):
        RED = "secret"

        def __repr__(self) -> str:
            return str(refuse())

    assert show(Colour.RED).endswith("Colour>")


def test_the_text_is_short_and_made_in_little_time() -> None:
    wide = {f"name {number}": ["x" * 90] * 100 for number in range(100)}
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    circle: list[Any] = []
    circle.extend([circle] * 100)
    huge = "a" * 10_000_000
    redactor = Redactor(["*never*", "x?y*z"])
    before = time.process_time()
    for value in (wide, deep, circle, huge, [huge] * 8, [wide] * 8):
        assert len(redactor.arguments(["value"], [value] * 50, {})) <= MOST_CHARACTERS
    assert time.process_time() - before < 2


def test_a_container_that_changes_meanwhile_is_shown_by_its_size() -> None:
    changing: dict[Any, Any] = {1: 1, 2: 2}

    class Grows(Redactor):
        def _show(self, value: Any, *rest: Any) -> str:
            if value == 1:
                changing[len(changing)] = 0
                changing["other"] = 0
            return super()._show(value, *rest)

    assert Grows().arguments([], [changing], {}) == "<dict of 2>"


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("item=tea&page=2", "item=tea&page=2"),
        ("item=green%20tea&flag", "item=green%20tea&flag"),
        ("a=1&token=hunter2&b=2", f"a=1&token={MASK}&b=2"),
        ("X-Amz-Signature=abc&apiKey=abc", f"X-Amz-Signature={MASK}&apiKey={MASK}"),
        ("pass%77ord=hunter2", f"pass%77ord={MASK}"),
        ("next=https%3A%2F%2Fme%3Ahunter2%40here", f"next={MASK}"),
        ("key=hunter2", f"key={MASK}"),
        ("sig=abc", f"sig={MASK}"),
        ("eyJhbGciOiJIUzI1NiJ9.e30", MASK),
        ("mail=me%40example.com&Phone=1", f"mail={MASK}&Phone={MASK}"),
        ("", ""),
        ("&&=", "&&="),
    ],
)
def test_the_query_of_a_url_is_shown_without_secrets(query: str, shown: str) -> None:
    assert Redactor(["*phone*", "*@example.com"]).query(query) == shown


def test_the_query_of_a_url_is_cut_short() -> None:
    shown = Redactor().query("&".join(f"item{i}=value" for i in range(1000)))
    assert len(shown) <= MOST_CHARACTERS
    assert shown.startswith("item0=value&item1=value&")
