#!/usr/bin/env python3
"""Measures one relay hop: ekiden with each kind of listener, common relay programs, and a bare splice loop.

    python3 benches/relay.py [--quick] [--rounds N] [--only NAME,...] [--figures NAME,...] [--out FILE.md]

Needs root (network namespaces) and the programs of `scripts/setup bench`. The speed of a machine varies, so rounds are
interleaved: each round runs all treatments in a new order, one at a time, and only ratios of medians within a run are
compared. The environment variables EKIDEN and HAPROXY name other binaries, EKIDEN_QUERY is appended to ekiden's URL,
and EKIDEN_BEFORE names an earlier build of ekiden to measure in the same rounds.
"""

import os
from contextlib import ExitStack

from bench import command, figures, rounds, soak, stage, table, treatments
from bench.command import say
from bench.programs import Trouble

NEEDED = ("ip", "nginx", "curl", "wrk", "cc", "sysctl")
PLAN = stage.Plan(treatments.TREATMENTS, ("splice_loop",))
FIGURE_NAMES = [f.name for f in figures.FIGURES] + [figures.SOAK]


def wanted_figures(treatment, names, round_number, sizes):
    for figure in figures.FIGURES:
        if figure.name not in names or (figure.forwarders_only and treatment.way != "tcp"):
            continue
        if figure.name == "idle" and round_number >= sizes.idle_rounds:
            continue
        yield figure


def run_soak(bench, run, names):
    """Runs the soak for one listener of ekiden, the SOCKS listener if it is measured. If only the soak is requested,
    the treatment may be any of the selected ones."""
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
        run, parts = stage.set_up(stack, PLAN, options, sizes, files)
        bench = figures.Stand(*parts)
        if set(options.figures) - {figures.SOAK}:
            rounds.run_rounds(bench, run, lambda t, number: wanted_figures(t, options.figures, number, sizes))
        if figures.SOAK in options.figures:
            run_soak(bench, run, options.figures)
        return table.page(run), table.plots_page(run)


def main():
    options = command.options(__doc__, treatments.TREATMENTS, FIGURE_NAMES, "results.md")
    files = stage.begin(NEEDED)
    if files < 20000:
        say(f"WARNING: only {files} descriptors per process are allowed (ulimit -Hn): the soak may fail for that")
    page, plots = measure_all(options, figures.QUICK if options.quick else figures.NORMAL, files)
    command.write_quietly(os.path.splitext(options.out)[0] + ".html", plots)
    stage.finish(options, FIGURE_NAMES, page, "bench")


if __name__ == "__main__":
    main()
