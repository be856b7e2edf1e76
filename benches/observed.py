#!/usr/bin/env python3
"""Measures the cost of observing a relay: its CPU with an open dashboard and metrics scraped every second, compared
with its CPU without, in alternating windows, while 1,000 sessions transfer data.

The cost depends on the number of sessions, not on the bytes, and is a few milliseconds per second: less than the
variation of a busy relay's CPU between windows. Therefore it is measured with sessions that transfer little, and
compared with the CPU of a busy relay.

    python3 benches/observed.py [--quick] [--sessions N] [--out FILE.md]

EKIDEN in the environment names another binary.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager

from bench import admin, command
from bench.measure import process_clock
from bench.table import markdown_table
from bench.treatments import ekiden_binary

ENDS = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench", "observed_ends.py")]
# Bytes per transfer of a session, and the interval between transfers in seconds. AT_WORK: 0.4 Gbit/s for 1,000
# sessions, well below the capacity of two CPUs. AT_EASE: each session still transfers data every second, so that each
# snapshot reports it.
AT_WORK, AT_EASE = (16384, 0.3), (256, 0.9)
MOST = 3.0  # per cent: limit of the bar


class Relay:
    def __init__(self, stack, target):
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ekiden-observed-"))
        config = f"{folder}/ekiden.toml"
        with open(config, "w") as f:
            f.write('version = 1\n[[listener]]\nname = "door"\nbind = "127.0.0.1:0"\nkind = "tcp"\n'
                    f'target = "127.0.0.1:{target}"\n[admin]\nbind = "127.0.0.1:0"\n')
        argv = [ekiden_binary(), "run", "-c", config]
        self.process = stack.enter_context(started(argv, stdout=subprocess.PIPE))
        self.ports = {}
        while len(self.ports) < 2:
            line = self.process.stdout.readline()
            if not line:
                sys.exit("bench: ekiden ended")
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if " listening " in line:
                self.ports[words["listener"]] = int(words["address"].rpartition(":")[2])

    def moved(self):
        """Returns the bytes that the relay has transferred since its start."""
        return admin.total(self.ports["admin"], "ekiden_bytes_total")

    def cpu(self):
        return process_clock(self.process.pid)


@contextmanager
def started(argv, **more):
    """Starts a process, and kills it when the context ends."""
    process = subprocess.Popen(argv, text=True, **more)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def window(relay, watcher, seconds, watched):
    """Returns the CPU time of the relay over `seconds` in milliseconds per second, and its throughput in Gbit/s."""
    time.sleep(1)
    moved, before, began = relay.moved(), relay.cpu(), time.monotonic()
    if watched:
        watcher.stdin.write(f"{seconds}\n")
        watcher.stdin.flush()
        snapshots, scrapes = map(int, watcher.stdout.readline().split())
        if min(snapshots, scrapes) < seconds - 3:
            sys.exit(f"bench: only {snapshots} snapshots and {scrapes} scrapes in {seconds} s: the machine is too busy")
    else:
        time.sleep(seconds)
    cpu, span = relay.cpu() - before, time.monotonic() - began
    return cpu / span * 1000, (relay.moved() - moved) * 8 / span / 1e9


def measure(sessions, pace, rounds, seconds):
    """Returns pairs of windows, one without and one with an observer; each window is CPU time and throughput."""
    with ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        server = stack.enter_context(started([*ENDS, "server", str(sessions), *map(str, pace)], **pipes))
        relay = Relay(stack, int(server.stdout.readline()))
        clients = stack.enter_context(started([*ENDS, "clients", str(relay.ports["door"]), str(sessions)], **pipes))
        watcher = stack.enter_context(started([*ENDS, "watcher", str(relay.ports["admin"])], **pipes))
        if clients.stdout.readline() != "open\n":
            sys.exit("bench: not all sessions could be opened")
        time.sleep(3)
        pairs = []
        for number in range(rounds):
            # The order alternates, so that both kinds of window are first equally often.
            order = (False, True) if number % 2 == 0 else (True, False)
            found = {watched: window(relay, watcher, seconds, watched) for watched in order}
            command.say(f"round {number + 1}: " + ", ".join(
                f"{cpu:.1f} ms/s at {rate:.2f} Gbit/s {'observed' if watched else 'alone'}"
                for watched, (cpu, rate) in sorted(found.items())))
            pairs.append((found[False], found[True]))
        if clients.poll() is not None:
            sys.exit("bench: a session has ended")
    return pairs


def medians(pairs):
    """Returns the medians of CPU time and rate, without and with an observer, the median difference of CPU time in a
    pair, and the standard error of the mean difference."""
    alone, observed = zip(*pairs)
    more = [o[0] - a[0] for a, o in pairs]
    error = statistics.stdev(more) / len(more) ** 0.5
    return *([statistics.median(values) for values in zip(*found)] for found in (alone, observed)), statistics.median(more), error


def page(work, ease, sessions, seconds):
    (base, _), _, _, _ = medians(work)
    rows, shares = [], []
    for name, pairs in (("at work", work), ("at ease", ease)):
        alone, observed, more, error = medians(pairs)
        shares.append((more / base * 100, f"{more / base * 100:+.1f} ± {error / base * 100:.1f} %"))
        rows.append([name, f"{alone[0]:.1f} at {alone[1]:.3f}", f"{observed[0]:.1f} at {observed[1]:.3f}", f"{more:+.1f} ± {error:.1f}",
                     shares[-1][1]])
    met = [share <= MOST for share, _ in shares]
    verdict = "met" if all(met) else "not settled: the two differ" if any(met) else "**missed**"
    direct, steady = (said for _, said in shares)
    heads = ["the sessions are", "alone, ms/s at Gbit/s", "observed", "more, ms/s", f"of {base:.0f} ms/s"]
    return "\n".join([
        "# Being observed, measured", "",
        f"Written by benches/observed.py. {sessions:,} sessions move bytes; observed is one dashboard (`/api/stream`) and "
        "`/metrics` scraped every second. CPU of the relay, all its threads, in milliseconds a second; medians of "
        f"{len(work)} pairs of windows of {seconds} s at work and {len(ease)} at ease, in turns; ± is the standard error.", "",
        *markdown_table(heads, rows), "",
        f"Being observed costs **{steady}** of the CPU of the relay at work, as measured beside sessions at ease; at most {MOST:.0f} % was "
        f"wanted. Beside sessions at work, where windows differ more, it is {direct}. The bar is {verdict}.", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="a few short rounds, half a minute")
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "observed.md"))
    options = parser.parse_args()
    command.raise_file_limit()
    rounds, seconds = (4, 5) if options.quick else (12, 10)
    found = []
    for name, pace in (("at work", AT_WORK), ("at ease", AT_EASE)):
        command.say(f"sessions {name}")
        found.append(measure(options.sessions, pace, rounds, seconds))
    written = page(*found, options.sessions, seconds)
    with open(options.out, "w") as f:
        f.write(written)
    print(written, end="")


if __name__ == "__main__":
    main()
