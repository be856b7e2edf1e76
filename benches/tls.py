#!/usr/bin/env python3
"""Compares one download through an HTTPS proxy: ekiden, squid with GnuTLS and with OpenSSL, and Caddy.

    python3 benches/tls.py [--quick] [--rounds N] [--only NAME,...] [--figures one] [--out FILE.md]

Works like relay.py: as root, in interleaved rounds, with ratios of medians within a run. The environment variables
EKIDEN and CADDY name other binaries, and EKIDEN_BEFORE names an earlier build of ekiden to measure in the same rounds.
"""

from contextlib import ExitStack
from dataclasses import replace

from bench import command, figures, https_proxies, rounds, stage, table
from bench.bars import earlier_bars, ratio_bar
from bench.treatments import EKIDEN, PEER

NEEDED = ("ip", "nginx", "curl", "sysctl", "openssl")
FIGURE = figures.Figure("one", https_proxies.one)
NORMAL = replace(figures.NORMAL, rounds=7, repeats=1)
QUICK = replace(figures.QUICK, repeats=1)
RATE_LEAST, CPU_MOST = 1.3, 0.6
TITLE = "One download through an HTTPS proxy, measured"
ABOUT = ("Written by `make bench-tls` (benches/tls.py). nginx serves by HTTP. The client speaks TLS to the proxy, sends CONNECT within it, "
         "and discards the records of the download without decrypting them, so that it takes little of the machine. Each has its own "
         "network namespace. Before, curl checks a download through each proxy. CPU is that of the proxy alone, user and system, with "
         "all its children. Cells are medians [least – most] of the rounds.")


def bars(results):
    ours = [t.name for t in results.treatments if t.kind == EKIDEN]
    peers = [t.name for t in results.treatments if t.kind == PEER]
    rows = [ratio_bar(results, what, name, peer, key, limit) for name in ours for peer in peers
            for what, key, limit in (("1 download", "one_rate", RATE_LEAST), ("CPU per GiB", "one_cpu", CPU_MOST))]
    return rows + earlier_bars(results)


def page(run):
    lines = table.header(run, TITLE, ABOUT, ("nginx", "curl"))
    lines += [f"- all proxies: TLS 1.3 with {https_proxies.SUITE}, checked for each download; a certificate with a P-256 key"]
    lines += ["", "## Figures", ""] + table.figures(run.results)
    lines += ["", "## Bars", ""] + table.bar_table(bars(run.results))
    return "\n".join(lines + table.notes(run)) + "\n"


def main():
    options = command.options(__doc__, https_proxies.TREATMENTS, [FIGURE.name], "tls.md")
    files = stage.begin(NEEDED)
    with ExitStack() as stack:
        sizes = QUICK if options.quick else NORMAL
        run, parts = stage.set_up(stack, stage.Plan(https_proxies.TREATMENTS, ()), options, sizes, files)
        rounds.run_rounds(figures.Stand(*parts), run, lambda *_: [FIGURE])
        command.write(options.out, page(run))


if __name__ == "__main__":
    main()
