"""Tasks: slow ones, many of them, unequal ones, failing ones, and drivers that hold them up."""

import os
import signal
import time

import ray

from corpus import planted, spend
from corpus.running import main


@ray.remote
def extract(number):
    spend(0.05)
    return number


@ray.remote
def parse(number, seconds):
    return spend(seconds)


@ray.remote
def load(*seconds):
    spend(0.05)
    return sum(seconds)


@planted(on_path="parse", at_most={"scheduling": 0.2, "get": 0.2})
def slow_step(run):
    """One step of a chain of tasks takes nearly all of the time."""
    for number in range(run.times(3)):
        took = ray.get(load.remote(parse.remote(extract.remote(number), run.seconds(1.2, 0.05))))
        run.cost(took)


@ray.remote
def visit(page, seconds):
    return spend(seconds)


@planted("straggler", says=("visit",), beside=("worker-start",))
def straggler_among_tiny(run):
    """One call of a hundred and fifty tiny ones takes three seconds, and many others vary several times over."""
    pages = run.times(150)
    took = ray.get(
        [
            visit.remote(page, run.seconds(3, 0.01) if page == pages - 30 else 0.01 * (page % 4 == 0) + 0.001)
            for page in range(pages)
        ]
    )
    run.cost(max(took))


@ray.remote
def simulate(seed, seconds):
    return spend(seconds)


@planted("straggler", says=("simulate",))
def straggler_among_equals(run):
    """One of twenty equal tasks takes three seconds instead of two tenths, and is submitted last."""
    took = ray.get(
        [simulate.remote(seed, run.seconds(3, 0.2) if seed == 19 else run.seconds(0.2)) for seed in range(20)]
    )
    run.cost(max(took) - run.seconds(0.2))


@ray.remote
def aggregate(key, rows, pace):
    return spend(rows * pace)


@planted(("straggler", "skewed-partition"), says=("aggregate",))
def skewed_partition(run):
    """Rows are grouped by their key; one key has four fifths of them, and the others vary."""
    pace = run.seconds(0.001)
    rows = [(37 * key) % 90 + 1 for key in range(48)]
    if not run.mended:
        rows[11] = 3500
    took = ray.get([aggregate.remote(key, number, pace) for key, number in enumerate(rows)])
    run.cost(max(took))


@ray.remote(num_cpus=1)
def shuffle_part(part, seconds):
    return spend(seconds)


@ray.remote(num_cpus=1)
def merge_parts(*parts):
    return spend(0.4)


@planted("straggler", says=("shuffle_part",))
def barrier_behind_one(run):
    """The second stage begins when the last task of the first one has ended, and one takes ten times as long."""
    parts = [shuffle_part.remote(part, run.seconds(2.5, 0.25) if part == 3 else 0.25) for part in range(12)]
    ray.get([merge_parts.remote(*parts) for _ in range(4)])
    run.cost(ray.get(parts[3]) - 0.25)


@ray.remote
def increment(number):
    return number + 1


@ray.remote
def increment_all(numbers):
    return [number + 1 for number in numbers]


@planted("tiny-tasks", says=("increment",))
def tiny_tasks(run):
    """Four hundred tasks that each add one."""
    numbers = range(run.times(400))
    with run.costing():
        if run.mended:
            ray.get([increment_all.remote(list(numbers[part::4])) for part in range(4)])
        else:
            ray.get([increment.remote(number) for number in numbers])


@ray.remote
def distance(one, other):
    return abs(one - other)


@ray.remote
def compare(one, others, mended):
    if mended:
        return sum(abs(one - other) for other in others)
    return sum(ray.get([distance.remote(one, other) for other in others]))


@planted("tiny-tasks", says=("distance",), beside=("worker-start",), cluster={"num_cpus": 6})
def tiny_nested_tasks(run):
    """A task compares each pair by a task of its own."""
    with run.costing():
        for one in range(3):
            ray.get(compare.remote(one, list(range(run.times(120))), run.mended))


@ray.remote
def fetch(number):
    return spend(0.1)


@planted("get-in-loop", says=("fetch", "30 calls"))
def get_in_loop(run):
    """Each task is waited for before the next one is submitted."""
    if run.mended:
        ray.get([fetch.remote(number) for number in range(run.times(30))])
        return
    for number in range(run.times(30)):
        with run.costing():
            ray.get(fetch.remote(number))


@ray.remote(num_cpus=1.25)
def resize(picture):
    return spend(0.15)


@ray.remote(num_cpus=0)
def album(pictures, mended):
    begun = time.perf_counter()
    if mended:
        ray.get([resize.remote(picture) for picture in range(pictures)])
    else:
        for picture in range(pictures):
            ray.get(resize.remote(picture))
    return time.perf_counter() - begun


@planted("get-in-loop", says=("album", "resize"), cluster={"num_cpus": 5})
def get_in_loop_of_a_task(run):
    """A task waits for each of its own tasks before it submits the next one."""
    run.cost(ray.get(album.remote(run.times(24), run.mended)))


@ray.remote
def score(text):
    return spend(0.02)


@planted(("serial-driver", "driver-code"))
def driver_prepares(run):
    """The driver prepares each piece for a tenth of a second, and the task for it takes a fifth of that."""
    refs = []
    for number in range(run.times(30)):
        run.cost(spend(run.seconds(0.1, 0.001)))
        refs.append(score.remote(number))
    ray.get(refs)


@ray.remote
def lookup(key):
    spend(0.02)
    return key


@ray.remote
def evaluate(candidate):
    spend(0.15)
    return candidate


@planted(("driver-code", "serial-driver"), at_most={"scheduling": 0.2})
def driver_aggregates(run):
    """After each round of equal tasks the driver is busy for half a second, and the workers are not."""
    for _ in range(run.times(6)):
        ray.get([evaluate.remote(candidate) for candidate in range(4)])
        run.cost(spend(run.seconds(0.5, 0.01)))


@ray.remote(max_retries=3, retry_exceptions=True)
def unreliable(number, folder, seconds, fails):
    path = os.path.join(folder, f"{os.environ.get('RAY_JOB_ID', '')}-{number}")
    with open(path, "a+") as tried:
        tried.seek(0)
        before = len(tried.read())
        tried.write("x")
    spend(seconds)
    if before < fails:
        raise ConnectionError(f"attempt {before} of {number}")
    return number


def scratch():
    return os.environ["CORPUS_FOLDER"]


@planted("errors", says=("unreliable", "lost work"))
def retries(run):
    """Each of eight tasks fails twice after half a second of work."""
    folder, seconds = scratch(), run.seconds(0.5)
    ray.get([unreliable.remote(number, folder, seconds, 0 if run.mended else 2) for number in range(8)])
    run.cost(0 if run.mended else 2 * 2 * seconds)


@ray.remote(max_retries=2, num_cpus=1)
def crashes(folder, seconds, how_often):
    path = os.path.join(folder, "crashed")
    with open(path, "a+") as crashed:
        crashed.seek(0)
        if len(crashed.read()) < how_often:
            crashed.write("x")
            crashed.flush()
            spend(seconds)
            os.kill(os.getpid(), signal.SIGKILL)
    spend(0.2)


@planted("killed-workers", says=("crashes",), beside=("worker-start",))
def killed_worker(run):
    """A worker is killed two seconds into its task, which is tried again."""
    folder = scratch()
    ray.get([crashes.remote(folder, run.seconds(2), 0 if run.mended else 1), *[lookup.remote(key) for key in range(9)]])
    run.cost(run.seconds(2, 0))


@ray.remote
def leaf(seconds):
    return spend(seconds)


@ray.remote(num_cpus=0)
def branch(seconds):
    return sum(ray.get([leaf.remote(seconds / 2), leaf.remote(seconds)])) - seconds / 2


@planted(on_path="leaf", at_most={"scheduling": 0.2}, cluster={"num_cpus": 8})
def nested_tasks(run):
    """Tasks that block on tasks of their own, of which the last take long."""
    for _ in range(3):
        took = ray.get([branch.remote(run.seconds(1.2, 0.1)) for _ in range(2)])
        run.cost(max(took))


@ray.remote
def convert(number, seconds):
    return spend(seconds)


@planted("straggler", ("driver-code", "serial-driver"))
def straggler_and_busy_driver(run):
    """One of twelve tasks takes two seconds more than the others; then the driver computes for as long."""
    took = ray.get([convert.remote(number, run.seconds(2.2, 0.2) if number == 5 else 0.2) for number in range(12)])
    run.cost(max(took) - 0.2)
    run.cost(spend(run.seconds(2, 0.01)), 1)
    ray.get(convert.remote(0, 0.1))


@planted("get-in-loop", "straggler")
def loop_and_straggler(run):
    """Ten rounds of one task each, and then a straggler among many."""
    if run.mended:
        ray.get([fetch.remote(number) for number in range(20)])
    else:
        for number in range(20):
            with run.costing():
                ray.get(fetch.remote(number))
    took = ray.get([simulate.remote(seed, run.seconds(2.5, 0.2) if seed == 7 else 0.2) for seed in range(16)])
    run.cost(max(took) - 0.2, 1)


@planted("killed-workers", "get-in-loop", beside=("worker-start",))
def killed_worker_and_loop(run):
    """A worker is killed two seconds into its task; then twenty tasks are waited for one by one."""
    folder = scratch()
    ray.get(crashes.remote(folder, run.seconds(2), 0 if run.mended else 1))
    run.cost(run.seconds(2, 0))
    if run.mended:
        ray.get([fetch.remote(number) for number in range(24)])
        return
    for number in range(24):
        with run.costing(1):
            ray.get(fetch.remote(number))


@planted("errors", ("serial-driver", "driver-code"))
def retries_and_slow_driver(run):
    """Tasks that fail once, and a driver that prepares others for long."""
    folder = scratch()
    seconds = run.seconds(1.5)
    ray.get([unreliable.remote(number, folder, seconds, 0 if run.mended else 1) for number in range(4)])
    run.cost(0 if run.mended else seconds)
    refs = []
    for number in range(20):
        run.cost(spend(run.seconds(0.1, 0.001)), 1)
        refs.append(score.remote(number))
    ray.get(refs)


@ray.remote(num_cpus=1)
def count_part(part):
    spend(0.05)
    return part


@ray.remote(num_cpus=1)
def merge_counts(one, other):
    return one + other + 0 * spend(0.25)


@planted("chain", says=("merge_counts",))
def chain_of_merges(run):
    """Sixteen counts are merged one after the other, where pairs could be merged side by side."""
    counts = [count_part.remote(part) for part in range(16)]
    with run.costing(less=5 * 0.25):
        if run.mended:
            while len(counts) > 1:
                counts = [merge_counts.remote(*counts[pair : pair + 2]) for pair in range(0, len(counts), 2)]
            merged = counts[0]
        else:
            merged = counts[0]
            for each in counts[1:]:
                merged = merge_counts.remote(merged, each)
        ray.get(merged)


if __name__ == "__main__":
    main()
