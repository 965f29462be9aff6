"""What Ray does at every call is done with less, and comes to the same."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray.cloudpickle
from ray import _raylet
from ray._private import client_mode_hook, utils, worker

from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import shortcuts


@pytest.fixture(params=[False, True], ids=["Ray's own", "ours"])
def is_ours(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Each test passes with what Ray has, and with what stands in its place."""
    patches = Patches()
    if request.param:
        assert shortcuts.patch(patches)
        assert [name for _, name in patches.targets()] == [
            "ray_pickle",
            "disable_client_hook",
            "_changeproctitle",
            "__enter__",
            "__exit__",
        ]
        shortcuts.patch(patches)
        assert len(patches.targets()) == 5, "not a second time"
    yield request.param
    patches.undo()
    assert vars(_raylet)["ray_pickle"] is ray.cloudpickle
    assert vars(_raylet)["disable_client_hook"] is client_mode_hook.disable_client_hook
    assert utils.DeferSigint.__enter__.__module__ == "ray._private.utils"


@pytest.fixture(autouse=True)
def handler() -> Iterator[list[int]]:
    """The signals that the program's own handler of SIGINT has got."""
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))
    yield heard
    signal.signal(signal.SIGINT, before)


def test_none_and_everything_else_are_pickled_as_before(is_ours: bool) -> None:
    pickle = vars(_raylet)["ray_pickle"]
    for value in (None, (ValueError,), lambda: 1):
        assert pickle.dumps(value) == ray.cloudpickle.dumps(value)
        assert pickle.dumps(value, protocol=2) == ray.cloudpickle.dumps(value, protocol=2)
    assert pickle.loads is ray.cloudpickle.loads
    assert (pickle is ray.cloudpickle) is not is_ours


@pytest.mark.usefixtures("is_ours")
def test_the_client_is_left_out_within_and_as_before_behind() -> None:
    def status() -> bool:
        return bool(client_mode_hook._get_client_hook_status_on_thread())

    def look() -> None:
        with vars(_raylet)["disable_client_hook"]():
            found.append(status())
            with pytest.raises(KeyError), vars(_raylet)["disable_client_hook"]():
                raise KeyError
            found.append(status())
        found.append(status())

    found: list[bool] = []
    look()
    other = threading.Thread(target=look)
    other.start()
    other.join()
    assert found == [False, False, True] * 2


@pytest.mark.usefixtures("is_ours")
def test_the_title_of_the_process_changes_and_changes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    monkeypatch.setattr(_raylet, "setproctitle", titles.append)
    with worker._changeproctitle("works", "idles"):
        titles.append("within")
    with pytest.raises(KeyError), worker._changeproctitle("works", "idles"):
        raise KeyError
    assert titles == ["works", "within", "idles", "works", "idles"]


@pytest.mark.usefixtures("is_ours")
class TestSigint:
    def test_it_is_put_off_until_the_end(self, handler: list[int]) -> None:
        with utils.DeferSigint.create_if_main_thread():
            os.kill(os.getpid(), signal.SIGINT)
            assert not handler
        assert handler == [signal.SIGINT]
        os.kill(os.getpid(), signal.SIGINT)
        assert len(handler) == 2, "the program's handler is back"

    def test_it_is_forgotten_where_an_error_comes_first(self, handler: list[int]) -> None:
        def work() -> None:
            with utils.DeferSigint():
                os.kill(os.getpid(), signal.SIGINT)
                raise KeyError

        with pytest.raises(KeyError):
            work()
        assert not handler

    def test_a_handler_that_is_set_within_is_there_behind(self, handler: list[int]) -> None:
        new: list[int] = []
        before = signal.getsignal(signal.SIGINT)
        with utils.DeferSigint():
            given = signal.signal(signal.SIGINT, lambda number, _frame: new.append(number))
            os.kill(os.getpid(), signal.SIGINT)
        assert given is before
        assert (handler, new) == ([], [signal.SIGINT])

    @pytest.mark.parametrize("other", [signal.SIG_IGN, signal.default_int_handler], ids=["ignored", "Python's own"])
    def test_any_handler_is_put_back(self, other: Any) -> None:
        signal.signal(signal.SIGINT, other)
        with utils.DeferSigint():
            pass
        assert signal.getsignal(signal.SIGINT) is other

    def test_whoever_has_replaced_the_function_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[Any] = []
        real: Callable[..., Any] = signal.signal

        def of_program(number: Any, handler: Any) -> Any:
            asked.append(number)
            return real(number, handler)

        monkeypatch.setattr(signal, "signal", of_program)
        with utils.DeferSigint():
            pass
        assert asked == [signal.SIGINT] * 2
        assert signal.signal is of_program


def test_another_ray_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_raylet, "ray_pickle", object())
    monkeypatch.setattr(_raylet, "disable_client_hook", object())
    monkeypatch.delattr(worker, "_changeproctitle")
    monkeypatch.setattr(utils.DeferSigint, "__enter__", lambda self: self)
    patches = Patches()
    assert not shortcuts.patch(patches)
    assert not patches.targets()
