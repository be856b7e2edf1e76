#!/usr/bin/env python3
"""Compares the datagrams per second of SOCKS5 UDP ASSOCIATE with dante, over loopback.

    python3 benches/udp.py [--rounds N] [--seconds N] [--out FILE.md]

Needs root, because dante does. EKIDEN in the environment names another binary.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from bench import command, configs
from bench.treatments import ekiden_binary

PROGRAMS = ("ekiden", "dante")
WAYS = {"there": "to the target", "back": "to the target and back"}
SIZES = (64, 1200)  # bytes of payload
WINDOW = 64  # datagrams in flight
BAR = 0.8


def wait_listening(port, process):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
    sys.exit(f"bench: {process.args[0]} does not listen")


def commands(folder, ports):
    with open(f"{folder}/danted.conf", "w") as f:
        f.write(configs.DANTE.format(address="127.0.0.1", port=ports["dante"], interface="lo"))
    return {"ekiden": [ekiden_binary(), "run", "-L", f"socks://127.0.0.1:{ports['ekiden']}", "--admin", f"unix:{folder}/admin"],
            "dante": ["danted", "-f", f"{folder}/danted.conf"]}


def measure(load, port, way, size, seconds):
    argv = [load, str(port), way, str(seconds), str(size), str(WINDOW)]
    return json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout)["per_second"]


def rounds(load, ports, options):
    """Returns the figures of each program by way and size. Each round measures the programs one at a time, in
    alternating order."""
    found = {(way, size): {name: [] for name in PROGRAMS} for way in WAYS for size in SIZES}
    for number in range(options.rounds):
        for (way, size), figures in found.items():
            order = PROGRAMS if number % 2 == 0 else PROGRAMS[::-1]
            for name in order:
                figures[name].append(measure(load, ports[name], way, size, options.seconds))
    return found


def median_and_quartiles(figures):
    low, _, high = statistics.quantiles(figures, n=4)
    return f"{statistics.median(figures) / 1000:.1f} ({low / 1000:.1f} to {high / 1000:.1f})"


def page(found, options):
    lines = ["# Datagrams of SOCKS5 UDP ASSOCIATE, measured", "",
             "Written by `make bench-udp` (benches/udp.py): one client with one association, over loopback, with at most "
             f"{WINDOW} datagrams on their way. Thousands of datagrams per second that the relay passes on, median and quartiles of "
             f"{options.rounds} rounds of {options.seconds:g} s, the programs in turn. {os.cpu_count()} CPUs, which the load shares.", "",
             "| | payload, bytes | ekiden | dante | ratio |", "|---|---:|---:|---:|---:|"]
    ratios = []
    for (way, size), figures in found.items():
        ratio = statistics.median(figures["ekiden"]) / statistics.median(figures["dante"])
        ratios.append(ratio)
        cells = {name: median_and_quartiles(figures[name]) for name in PROGRAMS}
        lines.append(f"| {WAYS[way]} | {size} | {cells['ekiden']} | {cells['dante']} | {ratio:.2f} |")
    holds = "holds" if min(ratios) >= BAR else "**missed**"
    lines += ["", f"- {holds}: the smallest ratio is {min(ratios):.2f}; at least {BAR}"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2, help="length of each measurement")
    parser.add_argument("--out", default=os.path.join(command.HERE, "udp.md"), help="where the page is written")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds must be at least 2: quartiles need two values")
    command.demand_root_and_programs(("danted", "cc"))
    with tempfile.TemporaryDirectory(prefix="ekiden-udp-") as folder:
        load, ports = command.build("udp_load", folder), {name: command.free_port() for name in PROGRAMS}
        started = {}
        try:
            for name, argv in commands(folder, ports).items():
                started[name] = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                wait_listening(ports[name], started[name])
            written = page(rounds(load, ports, options), options)
        finally:
            for process in started.values():
                process.terminate()
                process.wait(timeout=20)
    command.write(options.out, written)


if __name__ == "__main__":
    main()
