#!/usr/bin/env python3
"""Measures transparent relays in a box between client and server, compared with plain forwarding and a `tcp` listener.

    python3 benches/transparent.py [--quick] [--rounds N] [--only NAME,...] [--figures NAME,...] [--out FILE.md]

Works like relay.py: as root, in interleaved rounds, with ratios of medians within a run. EKIDEN and HAPROXY in the
environment name other binaries.
"""

from contextlib import ExitStack

from bench import background, box_bars, box_figures, boxes, command, crowd, netns, origin, rounds, stage, table

NEEDED = ("ip", "ss", "nft", "iptables", "nginx", "curl", "cc", "sysctl")
FILES = 65536  # descriptors: two per session, and a crowd has 10,000 sessions
PLAN = stage.Plan(boxes.BOXES, ("open_loop", "probe"), netns.ENDS + netns.FAR_ENDS, "visitors.py")
CROWD = "crowd"
FIGURE_NAMES = [f.name for f in box_figures.FIGURES] + [CROWD]
TITLE = "Transparent relays, measured"
ABOUT = (
    "Written by `make bench-transparent` (benches/transparent.py). nginx serves, curl and our own clients ask; client, "
    "box (or two boxes in a row) and server are network namespaces, joined by veth. `direct` is a box that only "
    "forwards and has no rules; `tcp` forwards from a port of the box; `hold`, `strict` and haproxy catch what goes to "
    "the server. CPU is that of the relays alone; of the machine it is all that was not idle, both ends and softirqs "
    f"among it. `connect` is the time of connect(2), {box_figures.SETUP_RATE} sessions a second on idle boxes, and the "
    f"first byte is that of an answer of {origin.SMALL_BYTES} bytes. Datagrams go there and back through the box every "
    f"{background.PROBE_INTERVAL / 1000:g} ms and no relay intercepts them (`benches/probe.c`: times count from when one "
    "was due, and both ends run before other programs); the load beside them is only forwarded in the row `direct`. "
    "Cells are medians [least – most] of the rounds, and bars are judged by medians.")


def page(run, rows):
    lines = table.header(run, TITLE, ABOUT, ("nginx", "curl")) + ["", "## Figures", ""] + table.figures(run.results)
    lines += ["", "## Bars", ""] + table.bar_table(box_bars.bars(run.results) + rows)
    return "\n".join(lines + table.notes(run)) + "\n"


def measure_all(options, sizes, files):
    with ExitStack() as stack:
        run, parts = stage.set_up(stack, PLAN, options, sizes, files)
        bench = box_figures.Stand(*parts)
        bench.network.route_through()
        stack.enter_context(background.answerer(bench.network, bench.folder))
        if options.figures != [CROWD]:
            rounds.run_rounds(bench, run, lambda t, number: box_figures.wanted(t, options.figures, number, sizes))
        return page(run, crowd.bars(bench, run) if CROWD in options.figures else [])


def main():
    options = command.options(__doc__, boxes.BOXES, FIGURE_NAMES, "transparent.md")
    files = stage.begin(NEEDED, FILES)
    written = measure_all(options, box_figures.QUICK if options.quick else box_figures.NORMAL, files)
    stage.finish(options, FIGURE_NAMES, written, "bench-transparent")


if __name__ == "__main__":
    main()
