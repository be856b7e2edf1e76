#!/usr/bin/env python3
"""Measures sections: chains of ekiden relays with keys, beside tcp forwarding, `ssh -L` and stunnel.

    python3 benches/sections.py [--quick] [--rounds N] [--only NAME,...] [--figures NAME,...] [--out FILE.md]

Works like relay.py: as root, in interleaved rounds, with ratios of medians within a run. EKIDEN in the environment
names another binary.
"""

import os
import sys
from contextlib import ExitStack

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from bench import chain_bars, chain_figures, chains, command, measure, netns, origin  # noqa: E402
from bench import readme, rounds, table  # noqa: E402
from bench.programs import Agent  # noqa: E402
from bench.results import Results  # noqa: E402

NEEDED = ("ip", "ss", "nginx", "curl", "cc", "sysctl", "ssh-keygen", "openssl")
FIGURE_NAMES = [f.name for f in chain_figures.FIGURES]
TITLE = "Sections, measured"
ABOUT = (
    "Written by `make bench-sections` (benches/sections.py). nginx serves and curl asks, each in its own network "
    "namespace, through all of a chain in a third one. A chain is named by its listeners from the client on: "
    "`tcp-section` is a relay that forwards to a second one by a section, `tcp-tcp` two that forward. CPU is user and "
    "system of all programs of a chain together, with their children. The other columns are of "
    f"{chain_figures.RATE:,} new sessions a second, each a request of {origin.SMALL_BYTES} bytes on a connection of "
    "its own, opened at fixed times (`benches/open_loop.c`) and timed from connect to the first byte of the answer. "
    "Cells are medians [least – most] of the rounds.")


def page(run):
    lines = table.header(run, TITLE, ABOUT, ("nginx", "curl")) + ["", "## Figures", ""] + table.figures(run.results)
    lines += ["", "## Bars", ""] + table.bar_table(chain_bars.bars(run.results))
    return "\n".join(lines + table.notes(run)) + "\n"


def measure_all(options, sizes, files):
    with ExitStack() as stack:
        folder, content = command.temporary(stack), command.temporary(stack, origin.MEMORY)
        command.build("open_loop", folder)
        present, absent = command.available(chains.CHAINS, options.only)
        run = rounds.Run(options.quick, options.rounds or sizes.rounds, options.seed, os.getloadavg()[0],
                         Results(present))
        for treatment in absent:
            run.results.remark(treatment, "LEFT OUT: its program is missing")
        network = stack.enter_context(netns.Network())
        network.route_through()
        server = origin.Origin(network, folder, content, sizes, files)
        stack.callback(server.close)
        client = stack.enter_context(Agent(network, "client", "client.py", f"{folder}/client.log"))
        bench = chain_figures.Stand(network, server, client, sizes, folder, files)
        rounds.run_rounds(bench, run, lambda t, number: chain_figures.wanted(t, options.figures, number, sizes))
        return page(run)


def main():
    options = command.options(__doc__, chains.CHAINS, FIGURE_NAMES, "sections.md")
    command.demand_root_and_programs(NEEDED)
    command.stop_on_signals()
    measure.adopt_orphans()
    command.sweep()
    sizes = chain_figures.QUICK if options.quick else chain_figures.NORMAL
    written = measure_all(options, sizes, command.raise_file_limit())
    command.write(options.out, written)
    everything = options.only is None and options.figures == FIGURE_NAMES and not options.quick
    if everything and readme.update(os.path.join(os.path.dirname(HERE), "README.md"), written, "bench-sections"):
        command.say("README.md shows it")


if __name__ == "__main__":
    main()
