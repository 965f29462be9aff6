"""Runs of Ray Train: one with PyTorch whose rank fails and that is restarted, one with four ranks that meet at
different times, one that fails, one whose controller is killed, one without workers. Says what came of them and what
the ranks measured themselves.
"""

import json
import os
import re
import sys
import tempfile
import time

import harness
import ray
import ray.train
import ray.train.collective
from opentelemetry import trace
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.torch import TorchTrainer
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

tracer = trace.get_tracer("training")
folder = sys.argv[1]

CPU = {"CPU": 0.25}


@ray.remote(num_cpus=0)
def helper(x):
    return x


def note(kind, **values):
    """What a rank says goes to a file of its own."""
    with open(os.path.join(folder, f"{kind}-{os.getpid()}"), "a") as file:
        file.write(json.dumps(values) + "\n")


def noted(kind):
    found = []
    for name in sorted(os.listdir(folder)):
        if name.startswith(kind):
            with open(os.path.join(folder, name)) as file:
                found += [json.loads(line) for line in file]
    return found


class Seen(UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        note("callback", reported=[each["step"] for each in metrics], has_checkpoint=checkpoint is not None)

    def after_exception(self, run_context, worker_exceptions):
        note("callback", failed={str(rank): repr(error) for rank, error in worker_exceptions.items()})


def with_torch(config):
    """The second rank fails once, after the first step."""
    import torch
    from ray.train.torch import prepare_model

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rank, step, checkpoint = ray.train.get_context().get_world_rank(), 0, ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as path:
            state = torch.load(os.path.join(path, "model"))
            model.load_state_dict(state["model"])
            step = state["step"]
    while step < config["steps"]:
        step += 1
        with tracer.start_as_current_span("user step"):
            ray.get(helper.remote(step))
            loss = (model(torch.ones(4, 2) * (rank + 1)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as path:
            torch.save({"model": model.state_dict(), "step": step}, os.path.join(path, "model"))
            saved = Checkpoint.from_directory(path) if rank == 0 else None
            ray.train.report({"step": step, "loss": round(loss.item(), 4)}, checkpoint=saved)
        if not checkpoint:
            if rank == 1:
                # The next attempt needs the checkpoint, which Ray does not keep if it sees the error first.
                while not any(name.startswith("callback") for name in os.listdir(folder)):
                    time.sleep(0.01)
                raise ValueError(f"rank {rank} fails")
            harness.until_killed_in_thread()
    return round(loss.item(), 4)


def restarted():
    with tracer.start_as_current_span("user training"):
        result = TorchTrainer(
            with_torch,
            train_loop_config={"steps": 2},
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker=CPU),
            run_config=RunConfig(
                name="restarted",
                storage_path=os.path.join(folder, "storage"),
                failure_config=FailureConfig(max_failures=1),
                callbacks=[Seen()],
            ),
        ).fit()
    return {
        "metrics": result.metrics,
        "checkpoint": result.checkpoint is not None,
        "value": getattr(result, "return_value", None),  # older Rays have none
        "callback": noted("callback"),
    }


def meeting(config):
    """Each rank is later than the one before it, but for the last step, where the first one is late."""
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    rows = sum(len(batch["id"]) for batch in ray.train.get_dataset_shard("train").iter_batches(batch_size=5))
    ray.train.collective.barrier()
    for step in range(3):
        with tracer.start_as_current_span("user step", attributes={"rank": rank}):
            time.sleep(0.2 * (size - rank if step == 2 else rank))
        came = time.time()
        # Not removed here: it is uploaded after the report.
        path = tempfile.mkdtemp(dir=folder)
        checkpoint = Checkpoint.from_directory(path) if step == 1 and rank == 0 else None
        upload = ray.train.CheckpointUploadMode.ASYNC
        ray.train.report({"step": step}, checkpoint=checkpoint, checkpoint_upload_mode=upload)
        took = time.time() - came
        note("meeting", rank=rank, step=step, came=came, took=took)
    return rows


def four():
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    result = DataParallelTrainer(
        meeting,
        train_loop_config={},
        scaling_config=ScalingConfig(num_workers=4, resources_per_worker=CPU),
        datasets={"train": ray.data.range(40, override_num_blocks=4)},
        run_config=RunConfig(name="four", storage_path=os.path.join(folder, "storage")),
    ).fit()
    return {"metrics": result.metrics, "rows": getattr(result, "return_value", None), "meeting": noted("meeting")}


def breaks(config):
    raise KeyError(config["key"])


def failed():
    trainer = DataParallelTrainer(
        breaks,
        train_loop_config={"key": "missing"},
        scaling_config=ScalingConfig(num_workers=1, resources_per_worker=CPU),
        run_config=RunConfig(name="failed", storage_path=os.path.join(folder, "storage")),
    )
    try:
        trainer.fit()
    except ray.train.WorkerGroupError as error:
        return {"type": type(error).__name__, "text": re.sub(r"(0x)?[0-9a-f]{6,}", "ID", str(error))}


def ends_its_controller(config):
    from ray.train.v2._internal.execution.context import get_train_context

    with tracer.start_as_current_span("user step"):
        pass
    ray.kill(get_train_context().controller_actor)
    harness.until_killed_in_thread()


def killed():
    """The controller dies, and with it what it has started."""
    trainer = DataParallelTrainer(
        ends_its_controller,
        train_loop_config={},
        scaling_config=ScalingConfig(num_workers=1, resources_per_worker=CPU),
        run_config=RunConfig(name="killed", storage_path=os.path.join(folder, "storage")),
    )
    try:
        trainer.fit()
    except ray.exceptions.RayActorError as error:
        return type(error).__name__


def alone(config):
    with tracer.start_as_current_span("user step"):
        ray.get(helper.remote(1))
    ray.train.report({"step": 1})
    return "alone"


def local():
    trainer = DataParallelTrainer(
        alone,
        train_loop_config={},
        scaling_config=ScalingConfig(num_workers=0),
        run_config=RunConfig(storage_path=os.path.join(folder, "storage")),
    )
    result = trainer.fit()
    return {"metrics": result.metrics, "value": getattr(result, "return_value", None)}


def main():
    asked = sys.argv[2:] or ["restarted", "four", "failed", "killed", "local"]
    return {name: globals()[name]() for name in asked}


if __name__ == "__main__":
    harness.run(main)
