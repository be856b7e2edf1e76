#!/usr/bin/env python3
"""Measures shares of an interface: sections of several congestion controls on one slow link, with and without
[[interface]].

    python3 benches/share.py [--quick] [--out FILE.md]

Needs root. ekiden-lab emulates the link. EKIDEN and EKIDEN_LAB in the environment name other binaries.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from bench.table import cell
from bench.treatments import ekiden_binary, release_binary

HERE = os.path.dirname(os.path.abspath(__file__))
LAB = """lab = 1
name = "share"
seed = 1
[host.client]
[host.relay]
forward = true
[host.server]
[link.line]
ends = ["relay", "client"]
rate = "20Mbit/s"
delay = "10ms"
count = "l2"
queue = { kind = "tail-drop", limit = "150pkt" }
[link.fast]
ends = ["relay", "server"]
delay = "1ms"
"""
# The lab assigns the addresses, and names interfaces after their links.
START = """
address() { on "$1" ip -o -4 address show dev "$2" | awk '{ split($4, part, "/"); print part[1] }'; }
export SHARE_SERVER=$(address server fast) SHARE_RELAY=$(address relay line)
exec "$SHARE_PYTHON" "$SHARE_AGENT" "$SHARE_FOLDER" line "$SHARE_SIZE"
"""


def run_lab(quick):
    with tempfile.TemporaryDirectory(prefix="ekiden-share-") as folder:
        lab = f"{folder}/share.toml"
        with open(lab, "w") as f:
            f.write(LAB)
        environment = {**os.environ, "SHELL": "/bin/bash", "SHARE_PYTHON": sys.executable, "SHARE_FOLDER": folder,
                       "SHARE_AGENT": f"{HERE}/bench/shares.py", "SHARE_SIZE": "quick" if quick else "full",
                       "SHARE_EKIDEN": ekiden_binary()}
        argv = [release_binary("ekiden-lab"), "shell", lab, "relay"]
        subprocess.run(argv, input=START, text=True, env=environment, check=True)
        with open(f"{folder}/found.json") as f:
            return json.load(f)


def spread(values, digits=2):
    """Returns `median [least – most]` and the number of missing values, or a dash without values."""
    known = [v for v in values if v is not None]
    return cell(known, digits) + (f" ({len(values) - len(known)} never)" if 0 < len(known) < len(values) else "")


def grouped(rows, *keys):
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups.items()


WITH = {True: "with `[[interface]]`", False: "without"}


def page(found):
    lines = ["# Shares, measured", "",
             "Written by `make bench-share` (benches/share.py). A link of 20 Mbit/s, 20 ms of round trip and 150 packets of "
             "queue between relay and client; the interface has 19.6 Mbit/s to share. Rates are payload at the client, from "
             "the fifth second on. Cells are medians [least – most] of the rounds.", "",
             "| sections | | each, Mbit/s | sum, Mbit/s | Jain | round trip, ms |", "|---|---|---|---|---|---|"]
    for (name, hand), rows in grouped(found["shares"], "name", "hand"):
        controls = {}
        for row in rows:
            for (control, _), got in zip(row["sections"], row["got"]):
                controls.setdefault(control, []).append(got)
        each = ", ".join(f"{control} {spread(got)}" for control, got in controls.items())
        cells = [spread([row[key] for row in rows], digits) for key, digits in (("sum", 2), ("jain", 3), ("rtt", 1))]
        lines.append(f"| {name} | {WITH[hand]} | {each} | " + " | ".join(cells) + " |")
    lines += ["", "How long until a second download has its half (both within a fifth of it, over 0.3 s), and until the first "
              "has nine tenths of all again when the second ends:", "",
              "| first | second | | joins, s | leaves, s |", "|---|---|---|---|---|"]
    for (first, second, hand), rows in grouped(found["reaction"], "first", "second", "hand"):
        cells = " | ".join(spread([row[key] for row in rows]) for key in ("joins", "leaves"))
        lines.append(f"| {first} | {second} | {WITH[hand]} | {cells} |")
    lines += ["", "CPU of the relay, in per cent of one core:", "", "| sessions | | CPU |", "|---|---|---|"]
    for (name, hand), rows in grouped(found["cpu"], "name", "hand"):
        lines.append(f"| {name} | {WITH[hand]} | {spread([row['cpu'] for row in rows])} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="one round of short downloads, five minutes")
    parser.add_argument("--out", default=os.path.join(HERE, "share.md"), help="where the page is written")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench: the lab needs root: sudo make bench-share")
    written = page(run_lab(options.quick))
    with open(options.out, "w") as f:
        f.write(written)
    print(written, end="")


if __name__ == "__main__":
    main()
