"""Experiments of Ray Tune: eight trials of a class that a scheduler ends early, three of which one ends the
others, two that exploit each other, functions that fail and are restored, one that runs Ray Train, and one whose error
ends its experiment.
"""

import json
import os
import sys
import tempfile
import time

import harness
import ray
from opentelemetry import trace
from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining, TrialScheduler

tracer = trace.get_tracer("tuning")
folder = sys.argv[1]


@ray.remote(num_cpus=0)
def helper(x):
    return x


def run_config(name, **options):
    return tune.RunConfig(name=name, storage_path=os.path.join(folder, "storage"), verbose=0, **options)


class Counting(tune.Trainable):
    def setup(self, config):
        self.count = 0
        self.reset_config(config)

    def reset_config(self, config):
        self.factor, self.count = config["factor"], 0
        return True

    def step(self):
        self.count += 1
        with tracer.start_as_current_span("user step"):
            time.sleep(0.01)
        return {"score": self.count * self.factor}

    def save_checkpoint(self, path):
        with open(os.path.join(path, "state"), "w") as file:
            json.dump(self.count, file)

    def load_checkpoint(self, path):
        with open(os.path.join(path, "state")) as file:
            self.count = json.load(file)


def asha():
    with tracer.start_as_current_span("user tuning"):
        results = tune.Tuner(
            Counting,
            param_space={"factor": tune.grid_search(list(range(8, 0, -1)))},
            tune_config=tune.TuneConfig(
                metric="score",
                mode="max",
                scheduler=ASHAScheduler(time_attr="training_iteration", max_t=4, grace_period=1, reduction_factor=2),
                reuse_actors=True,
                max_concurrent_trials=2,
            ),
            run_config=run_config("asha"),
        ).fit()
    return {"trials": len(results), "best": results.get_best_result().metrics["score"], "errors": len(results.errors)}


class Comparing(FIFOScheduler):
    """Ends trials when another one has a result, as HyperBand does."""

    def on_trial_result(self, controller, trial, result):
        if trial.config["factor"] != 1 or result["training_iteration"] < 2:
            return TrialScheduler.CONTINUE
        for other in controller.get_trials():
            if other is not trial:
                controller.stop_trial(other)
        return TrialScheduler.STOP


def compared():
    results = tune.Tuner(
        tune.with_resources(Counting, {"CPU": 0.25}),
        param_space={"factor": tune.grid_search([1, 2, 3])},
        tune_config=tune.TuneConfig(scheduler=Comparing()),
        run_config=run_config("compared"),
    ).fit()
    return {"trials": len(results), "errors": len(results.errors)}


def pbt():
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        quantile_fraction=0.5,
        resample_probability=1.0,
        hyperparam_mutations={"factor": [10]},
        synch=True,
    )
    results = tune.Tuner(
        Counting,
        param_space={"factor": tune.grid_search([1, 2])},
        tune_config=tune.TuneConfig(metric="score", mode="max", scheduler=scheduler, reuse_actors=True),
        run_config=run_config("pbt", stop={"training_iteration": 4}),
    ).fit()
    return {"trials": len(results), "errors": len(results.errors)}


def training(config):
    """The second trial fails once after each of its checkpoints, and then for good."""
    begin, checkpoint = 0, tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as path, open(os.path.join(path, "state")) as file:
            begin = json.load(file) + 1
    for step in range(begin, 3):
        with tracer.start_as_current_span("user step", attributes={"step": step}):
            ray.get(helper.remote(step))
        if config["fails"] and step == begin and begin:
            raise ValueError(f"step {step} fails")
        with tempfile.TemporaryDirectory() as path:
            with open(os.path.join(path, "state"), "w") as file:
                json.dump(step, file)
            tune.report({"score": step}, checkpoint=tune.Checkpoint.from_directory(path))
        if config["fails"] and not begin:
            raise ValueError(f"step {step} fails")


def functions():
    results = tune.Tuner(
        training,
        param_space={"fails": tune.grid_search([False, True]), "api_key": "hunter2", "name": "plain"},
        tune_config=tune.TuneConfig(metric="score", mode="max"),
        run_config=run_config("functions", failure_config=tune.FailureConfig(max_failures=1)),
    ).fit()
    return {
        "scores": [each.metrics.get("score") for each in results],
        "errors": [type(error).__name__ for error in results.errors],
    }


def fails(config):
    raise ValueError("no training, please")


def raising():
    """The error of a trial ends the experiment at once."""
    run = run_config("raising", failure_config=tune.FailureConfig(fail_fast="raise"))
    try:
        tune.Tuner(fails, run_config=run).fit()
    except ValueError as error:
        return {"error": type(error).__name__}


def with_train(config):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def loop(config):
        with tracer.start_as_current_span("user step"):
            ray.get(helper.remote(1))
        ray.train.report({"score": 1})

    result = DataParallelTrainer(
        loop,
        train_loop_config={},
        scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 0.25}),
        run_config=RunConfig(name="inner", storage_path=os.path.join(folder, "storage")),
    ).fit()
    tune.report({"score": result.metrics["score"] if result.metrics else 1})


def train():
    trainable = tune.with_resources(with_train, {"CPU": 0.25})
    results = tune.Tuner(trainable, run_config=run_config("train")).fit()
    return {"scores": [each.metrics["score"] for each in results], "errors": len(results.errors)}


def main():
    asked = sys.argv[2:] or ["asha", "compared", "pbt", "functions", "train", "raising"]
    return {name: globals()[name]() for name in asked}


if __name__ == "__main__":
    harness.run(main)
