#!/usr/bin/env python3
"""Measures one relay hop: ekiden by each way in, the programs people use today, and a bare splice loop.

    python3 benches/relay.py [--quick] [--rounds N] [--only NAME,...] [--figures NAME,...] [--out FILE.md]

Needs root (network namespaces) and the programs of `scripts/setup bench`. Machines are noisy: rounds are
interleaved, every round takes all treatments in a new order, one at a time, and what counts are the ratios of medians
within a run. EKIDEN and HAPROXY in the environment name other binaries, EKIDEN_QUERY adds to ekiden's URL.
"""

import os
import sys
from contextlib import ExitStack

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from bench import command, figures, measure, netns, origin, readme, rounds, soak, table, treatments  # noqa: E402
from bench.command import say  # noqa: E402
from bench.programs import Agent, Trouble  # noqa: E402
from bench.results import Results  # noqa: E402

NEEDED = ("ip", "nginx", "curl", "wrk", "cc", "sysctl")
FIGURE_NAMES = [f.name for f in figures.FIGURES] + [figures.SOAK]


def wanted_figures(treatment, names, round_number, sizes):
    for figure in figures.FIGURES:
        if figure.name not in names or (figure.forwarders_only and treatment.way != "tcp"):
            continue
        if figure.name == "idle" and round_number >= sizes.idle_rounds:
            continue
        yield figure


def run_soak(bench, run, names):
    """The soak, of one way into ekiden (SOCKS if measured); asked for alone, of whatever else was chosen."""
    ways = [t for t in run.results.treatments if t.kind == treatments.EKIDEN or names == [figures.SOAK]]
    ways.sort(key=lambda t: (t.kind != treatments.EKIDEN, t.way != "socks"))
    if not ways:
        return
    say(f"soak of {ways[0].name}: {soak.SESSIONS} sessions, {soak.PASSES} times, about a minute")
    try:
        stand = bench.start(ways[0], rounds.first_port(run, ways[0]))
        with stand.relay:
            run.soak = soak.soak(stand)
        say(f"soak: {run.soak}")
    except Trouble as trouble:
        run.results.fail(ways[0], figures.SOAK, trouble)
        say(f"!!! soak failed: {trouble}")


def measure_all(options, sizes, files):
    with ExitStack() as stack:
        folder, content = command.temporary(stack), command.temporary(stack, origin.MEMORY)
        command.build("splice_loop", folder)
        present, absent = command.available(treatments.TREATMENTS, options.only)
        run = rounds.Run(options.quick, options.rounds or sizes.rounds, options.seed, os.getloadavg()[0],
                         Results(present))
        for treatment in absent:
            run.results.remark(treatment, "LEFT OUT: its program is missing")
        network = stack.enter_context(netns.Network())
        server = origin.Origin(network, folder, content, sizes, files)
        stack.callback(server.close)
        client = stack.enter_context(Agent(network, "client", "client.py", f"{folder}/client.log"))
        bench = figures.Stand(network, server, client, sizes, folder, files)
        if set(options.figures) - {figures.SOAK}:
            rounds.run_rounds(bench, run, lambda t, number: wanted_figures(t, options.figures, number, sizes))
        if figures.SOAK in options.figures:
            run_soak(bench, run, options.figures)
        return table.page(run)


def main():
    options = command.options(__doc__, treatments.TREATMENTS, FIGURE_NAMES, "results.md")
    command.demand_root_and_programs(NEEDED)
    command.stop_on_signals()
    measure.adopt_orphans()
    command.sweep()
    files = command.raise_file_limit()
    if files < 20000:
        say(f"WARNING: only {files} descriptors per process are allowed (ulimit -Hn): the soak may fail for that")
    page = measure_all(options, figures.QUICK if options.quick else figures.NORMAL, files)
    command.write(options.out, page)
    # A full run of everything is what the README shows.
    everything = options.only is None and options.figures == FIGURE_NAMES and not options.quick
    if everything and readme.update(os.path.join(os.path.dirname(HERE), "README.md"), page, "bench"):
        say("README.md shows it")


if __name__ == "__main__":
    main()
