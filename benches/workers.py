#!/usr/bin/env python3
"""Measures one relay hop of ekiden with 1, 2, 4 and 8 worker threads.

    python3 benches/workers.py [--quick] [--rounds N] [--only NAME,...] [--figures NAME,...] [--out FILE.md]

Works like relay.py: as root, in interleaved rounds, with ratios of medians within a run.
"""

from contextlib import ExitStack

from bench import command, figures, rounds, speak, stage, table
from bench.configs import EKIDEN_TCP
from bench.treatments import EKIDEN, Treatment, configured

THREADS = (1, 2, 4, 8)
NEEDED = ("ip", "nginx", "curl", "wrk", "cc", "sysctl")
FIGURES = tuple(figure for figure in figures.FIGURES if figure.name != "idle")
TITLE = "Worker threads of one relay hop, measured"
ABOUT = ("Written by `make bench-workers` (benches/workers.py), in the setup of `make bench`. With more threads than processors, the "
         "kernel divides the processors among the threads. Cells are medians [least – most] of the rounds.")


def ekiden(threads):
    def text(place):
        target = f"{place.target[0]}:{place.target[1]}"
        return f"version = 1\nthreads = {threads}\n" + EKIDEN_TCP.format(port=place.port, target=target)
    return configured(text, "run", "--admin", "off", "-c", "FILE")


def name(threads):
    return f"{threads} thread{'s' if threads > 1 else ''}"


TREATMENTS = tuple(Treatment(name(threads), EKIDEN, speak.TCP, "ekiden", ekiden(threads)) for threads in THREADS)


def page(run):
    lines = table.header(run, TITLE, ABOUT, ("nginx", "curl", "wrk")) + ["", "## Figures", ""] + table.figures(run.results)
    return "\n".join(lines + table.ratios(run.results, name(1), lambda _: name(1)) + table.notes(run)) + "\n"


def main():
    options = command.options(__doc__, TREATMENTS, [figure.name for figure in FIGURES], "workers.md")
    files = stage.begin(NEEDED)
    with ExitStack() as stack:
        sizes = figures.QUICK if options.quick else figures.NORMAL
        run, parts = stage.set_up(stack, stage.Plan(TREATMENTS, ()), options, sizes, files)
        wanted = [figure for figure in FIGURES if figure.name in options.figures]
        rounds.run_rounds(figures.Stand(*parts), run, lambda *_: wanted)
        command.write(options.out, page(run))


if __name__ == "__main__":
    main()
