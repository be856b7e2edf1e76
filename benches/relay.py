#!/usr/bin/env python3
"""Measures one relay hop: ekiden by each way in, the programs people use today, and a bare splice loop.

    python3 benches/relay.py [--quick] [--rounds N] [--only NAME,...] [--figures NAME,...] [--out FILE.md]

Needs root (network namespaces) and the programs of `scripts/setup bench`. Machines are noisy: rounds are
interleaved, every round takes all treatments in a new order, one at a time, and what counts are the ratios of medians
within a run. EKIDEN and HAPROXY in the environment name other binaries, EKIDEN_QUERY adds to ekiden's URL.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from bench import figures, measure, netns, origin, readme, soak, table, treatments  # noqa: E402
from bench.programs import Agent, Trouble  # noqa: E402
from bench.results import Results  # noqa: E402

FIRST_PORT = 3001
GIVE_UP = 2  # a figure that failed so often with a treatment is not tried with it again
NEEDED = ("ip", "nginx", "curl", "wrk", "cc", "sysctl")
FIGURE_NAMES = [f.name for f in figures.FIGURES] + [figures.SOAK]


@dataclass
class Run:
    """What a run is and has found; `table.page` makes it a page."""
    quick: bool
    rounds: int
    seed: int
    load: float
    results: Results
    rounds_done: int = 0
    soak: object = None


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="3 rounds of small sizes, about 4 minutes")
    parser.add_argument("--rounds", type=int, help="how many rounds (default 5, quick 3)")
    parser.add_argument("--only", type=chosen([t.slug for t in treatments.TREATMENTS]), metavar="NAME,...",
                        help="these treatments: " + " ".join(t.slug for t in treatments.TREATMENTS))
    parser.add_argument("--figures", type=chosen(FIGURE_NAMES), metavar="NAME,...",
                        help="these figures: " + " ".join(FIGURE_NAMES), default=FIGURE_NAMES)
    parser.add_argument("--out", default=os.path.join(HERE, "results.md"), help="where the page is written")
    parser.add_argument("--seed", type=int, default=1, help="of the shuffled order")
    options = parser.parse_args()
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def chosen(known):
    """An argument type: a comma-separated list of known names."""
    def parse(text):
        names = [treatments.slug(n) for n in text.split(",") if n.strip()]
        wrong = [n for n in names if n not in known]
        if wrong or not names:
            raise argparse.ArgumentTypeError(f"no such name: {', '.join(wrong)}; known: {', '.join(known)}")
        return names
    return parse


def demand_root_and_programs():
    if os.geteuid() != 0:
        sys.exit("bench: needs root, for network namespaces: sudo python3 benches/relay.py")
    missing = [p for p in NEEDED if shutil.which(p) is None]
    if missing:
        sys.exit(f"bench: missing: {' '.join(missing)}. Run scripts/setup bench")


def raise_file_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < 20000:
        say(f"WARNING: only {hard} descriptors per process are allowed (ulimit -Hn): the soak may fail for that")
    return hard


def build_floor(folder):
    binary = os.path.join(folder, "splice_loop")
    subprocess.run(["cc", "-O2", "-o", binary, os.path.join(HERE, "splice_loop.c")], check=True)
    treatments.BUILT["splice_loop"] = binary


def available(names):
    """The wanted treatments whose program is there, and the names of the others, said loudly."""
    wanted = [t for t in treatments.TREATMENTS if names is None or t.slug in names]
    present = [t for t in wanted if treatments.binary_of(t.program)]
    for t in wanted:
        if t not in present:
            say(f"!!! LEFT OUT: {t.name}: no program at '{treatments.PROGRAMS[t.program][0]()}'")
    if not present:
        sys.exit("bench: nothing to measure")
    return present, [t for t in wanted if t not in present]


class Progress:
    """Says what is done and how long the rest may take."""

    def __init__(self, steps):
        self.steps, self.done, self.start = steps, 0, time.monotonic()

    def step(self, text):
        self.done += 1
        passed = time.monotonic() - self.start
        left = passed / self.done * (self.steps - self.done)
        say(f"[{self.done}/{self.steps}] {text} ({left // 60:.0f}m{left % 60:02.0f}s left)")


def wanted_figures(treatment, names, round_number, sizes):
    for figure in figures.FIGURES:
        if figure.name not in names or (figure.forwarders_only and treatment.way != "tcp"):
            continue
        if figure.name == "idle" and round_number >= sizes.idle_rounds:
            continue
        yield figure


def measure_treatment(bench, treatment, names, round_number, results):
    """All figures of one treatment in one round; trouble is noted and does not stop the run."""
    said = []
    port = FIRST_PORT + treatments.TREATMENTS.index(treatment)
    try:
        stand = bench.start(treatment, port)
    except Trouble as trouble:
        for figure in wanted_figures(treatment, names, round_number, bench.sizes):
            results.fail(treatment, figure.name, f"did not start: {trouble}")
        return f"!!! {trouble}"
    with stand.relay:
        for figure in wanted_figures(treatment, names, round_number, bench.sizes):
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


def run_rounds(bench, run, names):
    order = list(run.results.treatments)
    progress = Progress(run.rounds * len(order))
    shuffle = random.Random(run.seed)
    for number in range(run.rounds):
        shuffle.shuffle(order)
        for treatment in order:
            bench.server.check()
            said = measure_treatment(bench, treatment, names, number, run.results)
            progress.step(f"round {number + 1} {treatment.name}: {said}")
        run.rounds_done += 1


def run_soak(bench, run, names):
    """The soak, of one way into ekiden (SOCKS if measured); asked for alone, of whatever else was chosen."""
    ways = [t for t in run.results.treatments if t.kind == treatments.EKIDEN or names == [figures.SOAK]]
    ways.sort(key=lambda t: (t.kind != treatments.EKIDEN, t.way != "socks"))
    if not ways:
        return
    say(f"soak of {ways[0].name}: {soak.SESSIONS} sessions, {soak.PASSES} times, about a minute")
    try:
        stand = bench.start(ways[0], FIRST_PORT + len(treatments.TREATMENTS))
        with stand.relay:
            run.soak = soak.soak(stand)
        say(f"soak: {run.soak}")
    except Trouble as trouble:
        run.results.fail(ways[0], figures.SOAK, trouble)
        say(f"!!! soak failed: {trouble}")


def stop_on_signals():
    def stop(number, _):
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)  # once is enough: let the cleaning up finish
        sys.exit(128 + number)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)


def sweep():
    netns.sweep()
    measure.sweep()
    for parent in (tempfile.gettempdir(), origin.MEMORY):
        for name in filter(netns.is_leftover, os.listdir(parent)):
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)


def temporary(stack, parent=None):
    prefix = f"{netns.PREFIX}{os.getpid()}-"
    return stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, dir=parent))


def measure_all(options, sizes, files):
    with ExitStack() as stack:
        folder, content = temporary(stack), temporary(stack, origin.MEMORY)
        build_floor(folder)
        present, absent = available(options.only)
        run = Run(options.quick, options.rounds or sizes.rounds, options.seed, os.getloadavg()[0], Results(present))
        for treatment in absent:
            run.results.remark(treatment, "LEFT OUT: its program is missing")
        network = stack.enter_context(netns.Network())
        server = origin.Origin(network, folder, content, sizes, files)
        stack.callback(server.close)
        client = stack.enter_context(Agent(network, "client", "client.py", f"{folder}/client.log"))
        bench = figures.Stand(network, server, client, sizes, folder, files)
        if set(options.figures) - {figures.SOAK}:
            run_rounds(bench, run, options.figures)
        if figures.SOAK in options.figures:
            run_soak(bench, run, options.figures)
        return table.page(run)


def main():
    options = arguments()
    demand_root_and_programs()
    stop_on_signals()
    measure.adopt_orphans()
    sweep()
    sizes = figures.QUICK if options.quick else figures.NORMAL
    page = measure_all(options, sizes, raise_file_limit())
    with open(options.out, "w") as f:
        f.write(page)
    print(page, end="")
    say(f"written to {options.out}")
    # A full run of everything is what the README shows.
    everything = options.only is None and options.figures == FIGURE_NAMES and not options.quick
    if everything and readme.update(os.path.join(os.path.dirname(HERE), "README.md"), page):
        say("README.md shows it")


if __name__ == "__main__":
    main()
