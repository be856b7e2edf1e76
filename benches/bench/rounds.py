"""Interleaved rounds: each round runs all treatments in a new order, one at a time, and measures all their figures."""

import random
import time
from dataclasses import dataclass

from bench.command import say
from bench.programs import Trouble
from bench.results import Results

FIRST_PORT, PORTS = 3001, 10  # each treatment has ten ports
GIVE_UP = 2  # number of failures after which a figure of a treatment is skipped


@dataclass
class Run:
    """The parameters and results of a run; `table` renders them."""
    quick: bool
    rounds: int
    seed: int
    load: float
    results: Results
    rounds_done: int = 0
    soak: object = None
    default_control: str = None


class Progress:
    """Prints progress and an estimate of the remaining time."""

    def __init__(self, steps):
        self.steps, self.done, self.start = steps, 0, time.monotonic()

    def step(self, text):
        self.done += 1
        passed = time.monotonic() - self.start
        left = passed / self.done * (self.steps - self.done)
        say(f"[{self.done}/{self.steps}] {text} ({left // 60:.0f}m{left % 60:02.0f}s left)")


def first_port(run, treatment):
    return FIRST_PORT + PORTS * run.results.treatments.index(treatment)


def measure_treatment(bench, treatment, port, wanted, results):
    """Measures the requested figures of one treatment in one round. Failures are recorded and do not stop the run."""
    said = []
    try:
        stand = bench.start(treatment, port)
    except Trouble as trouble:
        for figure in wanted:
            results.fail(treatment, figure.name, f"did not start: {trouble}")
        return f"!!! {trouble}"
    with stand.relay:
        for figure in wanted:
            if results.failures[treatment.name, figure.name] >= GIVE_UP:
                said.append(f"{figure.name} given up")
                continue
            try:
                measured = figure.measure(stand)
                said += [f"{key} {value:.4g}" for key, value in measured.items() if key != "note"]
                results.add(treatment, measured)
            except Trouble as trouble:
                results.fail(treatment, figure.name, trouble)
                said.append(f"!!! {figure.name} failed: {trouble}")
                bench.client.ask("close")
    return ", ".join(said)


def run_rounds(bench, run, figures_of):
    """Runs all rounds. `figures_of(treatment, round)` returns the figures of a treatment in a round, possibly none."""
    order = list(run.results.treatments)
    progress = Progress(run.rounds * len(order))
    shuffle = random.Random(run.seed)
    for number in range(run.rounds):
        shuffle.shuffle(order)
        for treatment in order:
            bench.server.check()
            wanted = list(figures_of(treatment, number))
            said = wanted and measure_treatment(bench, treatment, first_port(run, treatment), wanted, run.results)
            progress.step(f"round {number + 1} {treatment.name}: {said or 'nothing'}")
        run.rounds_done += 1
