"""Ray Train in its first version, which runs on Ray Tune: two ranks that report, and a function of Ray Tune. Both work
with each Ray from 2.40 on, where ``RAY_TRAIN_V2_ENABLED=0`` asks for that version.
"""

import os
import sys

import harness
import ray
from opentelemetry import trace
from ray import tune
from ray.train import RunConfig, ScalingConfig, get_context, report
from ray.train.data_parallel_trainer import DataParallelTrainer

tracer = trace.get_tracer("training")
folder = sys.argv[1]


@ray.remote(num_cpus=0)
def helper(x):
    return x


def step(number):
    with tracer.start_as_current_span("user step"):
        return ray.get(helper.remote(number))


def loop():
    rank = get_context().get_world_rank()
    for number in range(2):
        report({"value": step(number) + rank})


def objective(config):
    for number in range(2):
        report({"value": step(number) * config["factor"]})


def main():
    config = {"storage_path": os.path.join(folder, "storage"), "verbose": 0}
    with tracer.start_as_current_span("user training"):
        trained = DataParallelTrainer(
            loop,
            scaling_config=ScalingConfig(
                num_workers=2, resources_per_worker={"CPU": 0.25}, trainer_resources={"CPU": 0.25}
            ),
            run_config=RunConfig(name="older", **config),
        ).fit()
    with tracer.start_as_current_span("user tuning"):
        tuned = tune.Tuner(
            tune.with_resources(objective, {"cpu": 0.25}),
            param_space={"factor": tune.grid_search([1, 2])},
            run_config=RunConfig(name="functions", **config),
        ).fit()
    return [trained.metrics["value"], sorted(result.metrics["value"] for result in tuned)]


if __name__ == "__main__":
    harness.run(main)
