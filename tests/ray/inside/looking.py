"""A hook that notes all that is Ray's, the API's and the process's before it calls ours.

Where a thing is an attribute, or what a decorated function calls, it is noted by its identity.
"""

import atexit
import logging
import os
import signal
import sys
import threading
from types import CellType, FunctionType

from opentelemetry import context

from ray_tracing_hooks import _startup, local

_things = {}
_process = {}
_at_exit = []
_of_logging = [logging.Logger, logging.LogRecord, logging.Formatter, logging.PercentStyle, logging.Handler]


def note():
    """Note what there is now."""
    _things.update(things())
    _process.update(process())


def setup():
    register, unregister = atexit.register, atexit.unregister

    def noticed(function, *args, **kwargs):
        _at_exit.append(function)
        return register(function, *args, **kwargs)

    def forget(function):
        _at_exit[:] = [other for other in _at_exit if other != function]
        unregister(function)

    atexit.register, atexit.unregister = noticed, forget
    note()
    local.setup()


def things():
    """Every attribute of the modules of Ray and of the API, and of each class in them, by its name, and what is within
    those that are decorated.
    """
    found = {}
    for name, module in list(sys.modules.items()):
        if module is not None and f"{name}.".startswith(("ray.", "opentelemetry.")):
            for key, value in list(vars(module).items()):
                found[f"{name} {key}"] = value
                if isinstance(value, type) and value.__module__ == name:
                    found |= {f"{name}.{key} {attribute}": item for attribute, item in list(vars(value).items())}
    return found | {f"{name} within": thing for name, value in found.items() for thing in within(value)}


def within(function):
    """What a function calls that Ray has decorated to connect or to ask a Ray Client first, if this is one."""
    if not isinstance(function, FunctionType) or function.__code__.co_name not in {"auto_init_wrapper", "wrapper"}:
        return []
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return [cells[name].cell_contents for name in ("fn", "func") if name in cells]


def patched():
    """What the package says that it has replaced, as such names."""
    return sorted(named(owner, name) for owner, name in _startup.patched())


def named(owner, name):
    if isinstance(owner, CellType):
        function = owner.cell_contents
        return " ".join(f"{function.__module__}.{function.__qualname__}".rsplit(".", 1)) + " within"
    return f"{owner.__module__}.{owner.__qualname__} {name}" if isinstance(owner, type) else f"{owner.__name__} {name}"


def process():
    """What else of a process could be changed."""
    links = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.exists(entry.path)]
    return {
        "at exit": [function.__qualname__ for function in _at_exit],
        "context": str(context.get_current()),
        "environment": dict(os.environ),
        "excepthook": str(sys.excepthook),
        # Connections and polls are Ray's. A closed spool file leaves its number to /dev/null: a thread that is about to
        # write to it must not hit a file of the program's.
        "files": sorted(link for link in links if link.startswith("/") and link != os.devnull),
        "logging": {kind.__name__: sorted(map(str, vars(kind).items())) for kind in _of_logging},
        "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "threads": sorted(thread.name for thread in threading.enumerate()),
    }


def changed():
    """The names of the things that are other than before the hook."""
    now = things()
    changed = {name for name, thing in _things.items() if now.get(name) is not thing}
    return sorted(changed - {"ray.util.debug _last_logged"})  # when Ray last said something of its own


def process_changed():
    """What is other than before the hook in the process, before and now."""
    now = process()
    return {name: [value, now[name]] for name, value in _process.items() if now[name] != value}
