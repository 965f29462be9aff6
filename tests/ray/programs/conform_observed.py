"""What can be seen from outside: the calls and actors as Ray lists them, its timeline, and what workers print."""

import collections
import logging
import os
import re
import sys
import threading
import warnings

# Read when Ray is imported: each line is shown, not only those that differ from others.
os.environ["RAY_DEDUP_LOGS"] = "0"

import ray
import scenarios
from ray._private import state
from scenarios import attempt, scenario
from shared import eventually
from task_states import states_of, tasks_of_this_job


@ray.remote
def succeeds(value=None):
    return value


@ray.remote(max_retries=0)
def fails():
    raise ValueError("listed")


@ray.remote(max_retries=2, retry_exceptions=True)
def retried():
    if ray._private.worker.global_worker.core_worker.get_current_task_attempt_number() < 2:
        raise KeyError("again")
    return 1


@ray.remote
def generates(n):
    for number in range(n):
        yield number


@ray.remote
def parent():
    return ray.get(succeeds.options(name="child", num_cpus=0).remote())


@ray.remote(enable_task_events=False)
def unseen():
    return 1


@ray.remote(num_cpus=0)
class Listed:
    def __init__(self, *args, **kwargs):
        self.value = args, kwargs

    def method(self, value=None):
        return value

    def fails(self):
        raise ValueError("listed")

    def generates(self):
        yield 1

    @ray.method(enable_task_events=False)
    def unseen(self):
        return 1

    async def unused(self):
        pass

    def __repr__(self):
        return f"Listed({len(self.value[0])})"


@ray.remote(num_cpus=0)
class Prints:
    def __repr__(self):
        return "Prints as it likes"

    def prints(self):
        print("an actor prints")
        print("an actor complains", file=sys.stderr)


def listed(task, names):
    """An entry without ids and times: those of other tasks by these tasks' names."""
    return [
        (task.get("name") or "").replace(str(os.getpid()), "?"),
        task.get("func_or_class_name"),
        task.get("type"),
        task.get("state"),
        task.get("attempt_number"),
        names.get(task.get("parent_task_id"), "?"),
        (task.get("required_resources") or {}) == {} or sorted(task["required_resources"].items()),
        task.get("error_type"),
        scenarios.same_in_each_run(task.get("error_message") or ""),
        states_of(task),
        task.get("language"),
        bool(task.get("actor_id")),
        bool(task.get("placement_group_id")),
    ]


@scenario
def calls_as_they_are_listed():
    actor = Listed.options(name=f"listed {os.getpid()}").remote(1, key="word")
    calls = [succeeds.remote(1), succeeds.options(name="named").remote(), succeeds.remote(value=2)]
    calls += [parent.remote(), retried.remote(), unseen.remote(), fails.remote()]
    calls += [actor.method.remote(1), actor.method.options(name="named method").remote(), actor.fails.remote()]
    calls += [actor.unseen.remote(), *generates.remote(2), *actor.generates.remote()]
    for call in calls:
        attempt(lambda call=call: ray.get(call))
    expected = {"succeeds": 4, "parent": 1, "retried": 3, "fails": 1, "generates": 1} | {
        f"Listed.{name}": count for name, count in [("__init__", 1), ("method", 2), ("fails", 1), ("generates", 1)]
    }

    def all_told():
        ended = [task for task in tasks_of_this_job() if task.get("state") in {"FINISHED", "FAILED"}]
        # That they ended is told by their owners, that they ran by their workers.
        ended = [task for task in ended if "RUNNING" in states_of(task)]
        counts = collections.Counter(task["func_or_class_name"] for task in ended)
        return all(counts[name] >= count for name, count in expected.items())

    # A worker tells every second what has happened in it.
    told = eventually(all_told)
    tasks = tasks_of_this_job()
    names = {task["task_id"]: task["func_or_class_name"] for task in tasks}
    return [told, sorted((listed(task, names) for task in tasks), key=str)]


@scenario
def actors_as_they_are_listed():
    name = f"seen {os.getpid()}"
    actor = Listed.options(name=name, max_restarts=2).remote("positional", key="word")
    ray.get(actor.method.remote())

    def entry():
        (found,) = [one for one in state.actors().values() if one["Name"] == name]
        return found

    keys = ("ActorClassName", "State", "NumRestarts", "IsDetached", "ReprName", "MaxRestarts", "RequiredResources")
    alive = [entry().get(key) for key in keys], sorted(entry())
    with open(f"/proc/{entry()['Pid']}/cmdline") as file:
        title = file.read().rstrip("\0 ")
    ray.kill(actor)
    dead = eventually(lambda: entry()["State"] == "DEAD")
    return [alive, title, dead, entry()["NumRestarts"], str(entry()["DeathCause"])[:40]]


@scenario
def the_timeline():
    name = f"in the timeline {os.getpid()}"
    ray.get(succeeds.options(name=name).remote())

    def found():
        return [event for event in ray.timeline() if name in event["cat"]]

    told = eventually(found)
    return [told, [[sorted(event), event["ph"], event["name"].replace(name, "?")] for event in found()]]


class Shown:
    """What Ray's threads write to a stream of this process."""

    def __init__(self, stream):
        self._stream, self._own = stream, threading.get_ident()
        self.text = ""

    def write(self, text):
        if threading.get_ident() != self._own:
            self.text += text
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


@scenario
def what_workers_print():
    """As the driver shows it."""

    @ray.remote(max_retries=0)
    def prints():
        print("a task prints")
        print("a task complains", file=sys.stderr)
        print("several\nlines\n\nof it", flush=True)
        os.write(1, b"past the interpreter\n")
        logging.getLogger("mine").warning("a task logs")
        logging.getLogger("ray").warning("by the logger of Ray")
        logging.info("not shown")
        warnings.warn("a task warns", UserWarning, stacklevel=1)
        warnings.warn("deprecated", DeprecationWarning, stacklevel=1)

    @ray.remote(max_retries=0)
    def prints_in_generator():
        print("a generator prints")
        yield 1
        print("and again")

    @ray.remote(max_retries=0)
    def leaves_thread():
        def work():
            print("a thread prints")
            raise ValueError("in a thread")

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    @ray.remote(max_retries=0)
    def drops():
        async def never():
            pass

        never()

        class Bad:
            def __del__(self):
                raise KeyError("in __del__")

        Bad()

    shown, complained = Shown(sys.stdout), Shown(sys.stderr)
    sys.stdout, sys.stderr = shown, complained
    try:
        actor = Prints.remote()
        ray.get([prints.remote(), actor.prints.remote(), leaves_thread.remote(), drops.remote()])
        list(prints_in_generator.remote())
        attempt(lambda: ray.get(fails.remote()))
        # The last line of each worker and stream.
        last = (
            ["an actor prints", "a thread prints", "past the interpreter", "and again"],
            ["an actor complains", "ValueError: in a thread", "KeyError: 'in __del__'", 'warnings.warn("deprecated"'],
        )
        for stream, texts in zip((shown, complained), last, strict=True):
            eventually(lambda stream=stream, texts=texts: all(text in stream.text for text in texts))
    finally:
        sys.stdout, sys.stderr = shown._stream, complained._stream
    return [lines_of(shown.text), lines_of(complained.text)]


def lines_of(text):
    """The lines of these workers, without those that come late from others. Their order does not depend on where the
    files that they name are.
    """
    lines = {scenarios.same_in_each_run(line.rstrip("\r")) for line in text.splitlines()}
    of_these = (line for line in lines if re.search(r"\((\w*prints\w*|leaves_thread|drops)\b", line, re.IGNORECASE))
    return sorted(of_these, key=lambda line: re.sub(r"/\S*/", "", line))


if __name__ == "__main__":
    scenarios.run(log_to_driver=True)
