"""Runs of Ray Train."""

import os
import tempfile
import time
from pathlib import Path

from corpus import healthy, planted, spend
from corpus.running import main

WITH = {"library": "train", "cluster": {"num_cpus": 7}}


def loop(config):
    """Steps of equal length, but for what the configuration plants."""
    import ray.train
    from ray.train import Checkpoint

    rank, begun = ray.train.get_context().get_world_rank(), 0
    with open(os.path.join(config["folder"], "begun"), "a") as file:
        file.write(f"{time.time()}\n")
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as path, open(os.path.join(path, "step")) as file:
            begun = int(file.read()) + 1
    if rank == config.get("loads_rank"):
        spend(config["loads"])
    for step in range(begun, config["steps"]):
        late = rank == config.get("late_rank") and step >= config.get("late_since", 0)
        spend(config["step"] + (config["late"] if late else 0))
        if step == config.get("fails_at") and not checkpoint and rank == 1:
            with open(os.path.join(config["folder"], "failed"), "w") as file:
                file.write(str(time.time()))
            raise RuntimeError("out of luck")
        with tempfile.TemporaryDirectory() as path:
            saved = None
            if rank == 0 and step % config.get("saves_every", 1000) == 1:
                with open(os.path.join(path, "step"), "w") as file:
                    file.write(str(step))
                spend(config.get("saving", 0))
                saved = Checkpoint.from_directory(path)
            ray.train.report({"step": step}, checkpoint=saved)
    with open(os.path.join(config["folder"], "ended"), "a") as file:
        file.write(f"{time.time()}\n")


def train(run, workers, failures=0, **config):
    """Returns for how long no rank was at work since one had failed, in seconds."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    folder, called = os.environ["CORPUS_FOLDER"], time.time()
    trainer = DataParallelTrainer(
        loop,
        train_loop_config={**config, "folder": folder},
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(
            name="job",
            storage_path=os.path.join(folder, "storage"),
            failure_config=FailureConfig(max_failures=failures),
        ),
    )
    trainer.fit()
    returned = time.time()
    begun, ended = ([float(line) for line in Path(folder, name).read_text().split()] for name in ("begun", "ended"))
    run.start = max(begun[:workers]) - called + returned - max(ended)
    if config.get("fails_at") is None:
        return 0.0
    with open(os.path.join(folder, "failed")) as file:
        return max(begun) - float(file.read())


@planted("straggler-rank", says=("rank 2",), beside=("training-start", "worker-start"), **WITH)
def late_rank(run):
    """The third of four ranks takes longer at each step."""
    late = run.seconds(0.5, 0)
    train(run, 4, steps=run.times(12), step=0.2, late=late, late_rank=2)
    run.cost(12 * late)


@planted("straggler-rank", says=("rank 0",), beside=("training-start", "worker-start"), **WITH)
def rank_becomes_late(run):
    """Of two ranks one is late from the fifth step on."""
    late = run.seconds(0.8, 0)
    train(run, 2, steps=run.times(12), step=0.25, late=late, late_rank=0, late_since=4)
    run.cost(8 * late)


@planted("training-restarts", says=("RuntimeError",), beside=("training-start", "worker-start"), **WITH)
def rank_fails(run):
    """A rank fails four seconds after the only checkpoint, so that these are lost."""
    step = run.seconds(0.5)
    restart = train(run, 2, failures=1, steps=12, step=step, saves_every=1000, fails_at=None if run.mended else 9)
    run.cost(0 if run.mended else 8 * step + restart)


@planted(
    "straggler-rank",
    says=("rank 0",),
    beside=("training-start", "worker-start", "slow-reports"),
    **WITH,
)
def slow_checkpoints(run):
    """The first rank takes two seconds to write each checkpoint, and the others wait for it."""
    saving = run.seconds(2, 0.01)
    train(run, 3, steps=12, step=0.2, saves_every=3, saving=saving)
    run.cost(4 * saving)


@planted(("training-start", "straggler-rank"), beside=("worker-start",), **WITH)
def late_first_step(run):
    """One rank loads its data for ten seconds before its first step."""
    loads = run.seconds(10, 0.05)
    train(run, 3, steps=8, step=0.25, loads_rank=1, loads=loads)
    run.cost(loads)


@planted("straggler-rank", "training-restarts", beside=("training-start", "worker-start"), **WITH)
def late_rank_and_restart(run):
    """A rank is late at each step, and the other one fails once."""
    late = run.seconds(0.8, 0)
    restart = train(
        run,
        2,
        failures=1,
        steps=10,
        step=0.3,
        late=late,
        late_rank=1,
        saves_every=1000,
        fails_at=None if run.mended else 6,
    )
    run.cost((10 + 5) * late)
    run.cost(0 if run.mended else 5 * (0.3 + late) + restart, 1)


@healthy(beside=("training-start", "worker-start"), **WITH)
def equal_ranks(run):
    """Three ranks that do the same."""
    train(run, 3, steps=16, step=0.5)


if __name__ == "__main__":
    main()
