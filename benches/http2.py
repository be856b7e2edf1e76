#!/usr/bin/env python3
"""Measures tunnels of one HTTP/2 connection, one of which is not read, on a path of 50 ms.

    python3 benches/http2.py [--seconds N] [--real] [--out FILE.md]

ekiden-lab emulates the path, in virtual time, or with --real in real time, which needs root. EKIDEN and EKIDEN_LAB in
the environment name other binaries.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

from bench.treatments import release_binary

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"  # Debian's interpreter, for which Debian packages h2
LAB = """lab = 1
name = "http2"
seed = 1
[host.client]
[host.relay]
forward = true
# The hosts share one kernel, whose limit for all TCP memory 100 servers that send all the time would reach.
[host.server]
sysctl = { "net.ipv4.tcp_wmem" = "4096 16384 65536" }
[link.far]
ends = ["client", "relay"]
rate = "200Mbit/s"
delay = "25ms"
queue = { kind = "tail-drop", limit = "1000pkt" }
[link.near]
ends = ["relay", "server"]
delay = "500us"
"""
# The lab assigns the addresses, and names interfaces after their links.
START = """
address() { on "$1" ip -o -4 address show dev "$2" | awk '{ split($4, part, "/"); print part[1] }'; }
export HTTP2_SERVER=$(address server near) HTTP2_RELAY=$(address relay far)
on server "$HTTP2_PYTHON" "$HTTP2_AGENT" server 9000 &
exec "$HTTP2_PYTHON" "$HTTP2_AGENT" measure "$HTTP2_EKIDEN" "$HTTP2_FOLDER" "$HTTP2_SECONDS"
"""


def run_lab(seconds, clock):
    with tempfile.TemporaryDirectory(prefix="ekiden-http2-") as folder:
        lab = f"{folder}/http2.toml"
        with open(lab, "w") as f:
            f.write(LAB)
        environment = {**os.environ, "SHELL": "/bin/bash", "HTTP2_PYTHON": PYTHON, "HTTP2_FOLDER": folder,
                       "HTTP2_AGENT": f"{HERE}/bench/http2_ends.py", "HTTP2_SECONDS": str(seconds),
                       "HTTP2_EKIDEN": os.path.abspath(release_binary("ekiden"))}
        memory = ["--memory", "8GiB"] if clock == "--virtual" else []
        argv = [release_binary("ekiden-lab"), "shell", clock, *memory, lab, "client"]
        said = subprocess.run(argv, input=START, text=True, env=environment, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(next(line for line in said.splitlines() if line.startswith("{")))


def bar(words, holds):
    return f"- {'holds' if holds else '**missed**'}: {words}"


def page(found, seconds, clock):
    lines = ["# Tunnels of one HTTP/2 connection, measured", "",
             "Written by `make bench-http2` (benches/http2.py). A client has 100 tunnels by CONNECT over one HTTP/2 connection to a "
             "relay, on a path of 200 Mbit/s and 50 ms of round trip. One of them carries nothing, or has a receiver that reads "
             f"nothing; the rates are those of the 99 others over {seconds:g} s, {'virtual' if clock == '--virtual' else 'real'} time.",
             "", "| | sum, Mbit/s | median of a tunnel | slowest | fastest |", "|---|---:|---:|---:|---:|"]
    bars = []
    for what in ("downloads", "uploads"):
        for name, words in (("alone", "one carries nothing"), ("beside", "one is not read")):
            got = found[what][name]
            cells = [f"{value:.2f}" for value in (sum(got), statistics.median(got), min(got), max(got))]
            lines.append(f"| {what}, {words} | " + " | ".join(cells) + " |")
        ratio = sum(found[what]["beside"]) / sum(found[what]["alone"])
        bars.append(bar(f"{what} beside a tunnel that is not read have {ratio:.1%} of their rate alone; at least 95 %", ratio >= 0.95))
    mib = found["memory"] / (1 << 20)
    bars.append(bar(f"a tunnel of which neither end reads takes {mib:.2f} MiB of the relay's memory; at most 1 MiB", mib <= 1))
    return "\n".join([*lines, "", *bars]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=20, help="length of each measurement")
    parser.add_argument("--real", action="store_const", dest="clock", const="--real", default="--virtual", help="in real time")
    parser.add_argument("--out", default=os.path.join(HERE, "http2.md"), help="where the page is written")
    options = parser.parse_args()
    written = page(run_lab(options.seconds, options.clock), options.seconds, options.clock)
    with open(options.out, "w") as f:
        f.write(written)
    print(written, end="")


if __name__ == "__main__":
    main()
