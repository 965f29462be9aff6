"""Small runs of Ray Train and Tune, each with one fault planted in it, or none: what the summary has to find.

Each runs as ``planted_training.py NAME``. Work is sleep (``spend``), so that they show the same on any machine.
"""

import os
import sys
import tempfile
import time

import ray
import ray.train
from ray import tune
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.util import placement_group_table

FOLDER = os.environ["PLANTED_FOLDER"]


def spend(milliseconds):
    """Be at work for so long: what is recorded and measured is the time itself, so there is nothing to await."""
    time.sleep(milliseconds / 1000)


def loop(config):
    """Steps of equal length, but for one rank that is late, and one that fails once."""
    rank, begun = ray.train.get_context().get_world_rank(), 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as path, open(os.path.join(path, "step")) as file:
            begun = int(file.read()) + 1
    for step in range(begun, config["steps"]):
        spend(config["step"] + (config["late"] if rank == config.get("late_rank") else 0))
        if step == config.get("fails_at") and not checkpoint and rank == 1:
            raise RuntimeError("out of luck")
        with tempfile.TemporaryDirectory() as path:
            saved = None
            if rank == 0 and step == config.get("saves_at"):
                with open(os.path.join(path, "step"), "w") as file:
                    file.write(str(step))
                saved = Checkpoint.from_directory(path)
            ray.train.report({"step": step}, checkpoint=saved)


def train(workers, failures=0, **config):
    return (
        DataParallelTrainer(
            loop,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(
                name=sys.argv[1],
                storage_path=os.path.join(FOLDER, "storage"),
                failure_config=FailureConfig(max_failures=failures),
            ),
        )
        .fit()
        .error
    )


def late_rank():
    """The third of four ranks takes longer than the others, at each step."""
    return train(4, steps=16, step=300, late=500, late_rank=2)


@ray.remote(num_cpus=3)
class Holder:
    def hold(self, milliseconds):
        """Until the workers have asked for it, and so long."""
        while all(each["state"] != "PENDING" for each in placement_group_table().values()):
            spend(50)
        spend(milliseconds)


def held_resources():
    """For some seconds an actor holds what the workers need."""
    holder = Holder.remote()
    held = holder.hold.remote(8000)
    del holder
    error = train(2, steps=8, step=500)
    ray.get(held)
    return error


def training_fails():
    """A rank fails some seconds after the only checkpoint."""
    return train(2, failures=1, steps=12, step=500, saves_at=1, fails_at=9)


def trial(config):
    for step in range(10):
        spend(200)
        if config["number"] % 3 == 2 and step == 6:
            raise ValueError("bad number")
        tune.report({"score": step * config["number"]})


def trials_fail():
    """Two of six trials fail before their end."""
    results = tune.Tuner(
        trial,
        param_space={"number": tune.grid_search(list(range(6)))},
        run_config=tune.RunConfig(name="trials_fail", storage_path=os.path.join(FOLDER, "storage"), verbose=0),
    ).fit()
    return len(results.errors)


if __name__ == "__main__":
    os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = "0.2"
    ray.init(
        num_cpus=4, _tracing_startup_hook="ray_tracing_hooks.local:setup", include_dashboard=False, log_to_driver=False
    )
    print(globals()[sys.argv[1]]())
    ray.shutdown()
