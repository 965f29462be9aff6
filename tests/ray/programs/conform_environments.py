"""Runtime environments of a job, a task and an actor."""

import logging
import os
import tempfile

import ray
import scenarios
from scenarios import attempt, scenario


def prepare():
    logging.getLogger("prepared").setLevel(7)
    os.environ["CONFORM_PREPARED"] = "yes"


def write(folder, **files):
    os.makedirs(folder)
    for name, text in files.items():
        with open(os.path.join(folder, f"{name}.py"), "w") as file:
            file.write(text)
    return folder


@ray.remote
def variables():
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith("CONFORM_")}


@ray.remote
class Actor:
    def variables(self):
        return ray.get(variables.remote())

    def own(self):
        return os.environ.get("CONFORM_ACTOR")

    def imported(self):
        import conform_module_in_working_dir

        return conform_module_in_working_dir.Value(2)


@ray.remote
def imported():
    import conform_module_in_working_dir
    import conform_py_module
    from conform_py_module import inner

    value = conform_module_in_working_dir.Value(1)
    return [value.double(), conform_py_module.__name__, inner.NAME, os.path.exists("conform_module_in_working_dir.py")]


@ray.remote
def raise_imported():
    import conform_module_in_working_dir

    raise conform_module_in_working_dir.Trouble("in the working folder")


@scenario
def variables_of_a_job_a_task_and_an_actor():
    more = {"env_vars": {"CONFORM_TASK": "t", "CONFORM_JOB": "other"}}
    # What is in force for an actor is for the tasks that it starts, too.
    actor = Actor.options(runtime_env={"env_vars": {"CONFORM_ACTOR": "a"}}).remote()
    return [
        ray.get(variables.remote()),
        ray.get(variables.options(runtime_env=more).remote()),
        ray.get([actor.own.remote(), actor.variables.remote()]),
        sorted(ray.get_runtime_context().runtime_env),
        os.environ.get("CONFORM_JOB"),
    ]


@scenario
def modules_of_a_working_folder():
    actor = Actor.remote()
    return [
        ray.get(imported.remote()),
        attempt(lambda: ray.get(raise_imported.remote()))[2].splitlines()[-1],
        attempt(lambda: ray.get(actor.imported.remote()))[0],
    ]


@scenario
def a_hook_that_sets_workers_up():
    @ray.remote
    def level():
        return [logging.getLogger("prepared").level, os.environ["CONFORM_PREPARED"]]

    return ray.get(level.remote())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        working = write(
            os.path.join(folder, "working"),
            conform_module_in_working_dir="""
class Value:
    def __init__(self, value):
        self.value = value

    def double(self):
        return self.value * 2


class Trouble(Exception):
    pass
""",
        )
        module = write(os.path.join(folder, "conform_py_module"), __init__="", inner="NAME = __name__\n")
        scenarios.run(
            runtime_env={
                "env_vars": {"CONFORM_JOB": "j"},
                "working_dir": working,
                "py_modules": [module],
                "worker_process_setup_hook": prepare,
            }
        )
