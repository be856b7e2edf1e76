#!/usr/bin/env python3
"""Measures sections: chains of ekiden relays with keys, beside tcp forwarding, `ssh -L` and stunnel.

    python3 benches/sections.py [--quick] [--rounds N] [--only NAME,...] [--figures NAME,...] [--out FILE.md]

Works like relay.py: as root, in interleaved rounds, with ratios of medians within a run. EKIDEN in the environment
names another binary.
"""

from contextlib import ExitStack

from bench import chain_bars, chain_figures, chains, command, origin, rounds, stage, table

NEEDED = ("ip", "ss", "nginx", "curl", "cc", "sysctl", "ssh-keygen", "openssl")
PLAN = stage.Plan(chains.CHAINS, ("open_loop",))
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
        run, parts = stage.set_up(stack, PLAN, options, sizes, files)
        bench = chain_figures.Stand(*parts)
        bench.network.route_through()
        rounds.run_rounds(bench, run, lambda t, number: chain_figures.wanted(t, options.figures, number, sizes))
        return page(run)


def main():
    options = command.options(__doc__, chains.CHAINS, FIGURE_NAMES, "sections.md")
    files = stage.begin(NEEDED)
    written = measure_all(options, chain_figures.QUICK if options.quick else chain_figures.NORMAL, files)
    stage.finish(options, FIGURE_NAMES, written, "bench-sections")


if __name__ == "__main__":
    main()
