#!/usr/bin/env python3
"""Measures a group of four relays, of which one is killed and one slowed to a tenth, at 2,000 new sessions per second.

    python3 benches/group.py [--rate N] [--seconds N] [--balance least|client] [--out FILE.md]

The slowed relay is stopped for 90 of every 100 ms. Under `ekiden-lab kernel run` the times are virtual and do not
depend on the load of the machine. EKIDEN in the environment names another binary. The exit status is 1 if a bar is
missed.
"""

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

from bench import admin, command, origin
from bench.command import free_port
from bench.etcd import run
from bench.programs import Trouble
from bench.table import markdown_table
from bench.treatments import ekiden_binary

MEMBERS = 4
KILLED, SLOWED = 1, 2
PERIOD, RUNNING = 0.1, 0.01  # seconds: stop period of the slowed relay, and its running time in each period
WARM_UP_SECONDS = 2
SLOW_SHARE, EQUAL_SHARE = 5, 10  # percent: limits of the bars
NGINX = """worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx-errors.log error;
events {{ worker_connections 8192; }}
http {{ access_log off; server {{ listen 127.0.0.1:{port} backlog=8192; location / {{ return 200 "{body}"; }} }}
client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder}; }}
"""


class Process:
    """A process that is killed at the end of the benchmark."""

    def __init__(self, stack, folder, argv):
        with open(f"{folder}/log", "a") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        stack.callback(self.kill)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def slow_down(self, over):
        """Stops the process for all but RUNNING seconds of each PERIOD, until `over` is set."""
        while not over.wait(RUNNING):
            self.process.send_signal(signal.SIGSTOP)
            over.wait(PERIOD - RUNNING)
            self.process.send_signal(signal.SIGCONT)


class Group:
    """The server, the members, and the relay that distributes sessions among the members."""

    def __init__(self, stack, folder, balance):
        self.folder, self.home, server, self.port = folder, f"{folder}/home.sock", free_port(), free_port()
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(MEMBERS)]
        with open(f"{folder}/nginx.conf", "w") as f:
            f.write(NGINX.format(folder=folder, port=server, body="x" * origin.SMALL_BYTES))
        Process(stack, folder, ["nginx", "-p", folder, "-e", f"{folder}/nginx-errors.log", "-c", f"{folder}/nginx.conf"])
        (key, public), (own, own_public) = self.key("group"), self.key("home")
        with open(f"{folder}/peers", "w") as f:
            f.write(f"{own_public} home\n")
        self.members = [self.relay(stack, f"member-{at}", key, f'[[listener]]\nbind = "{address}"\nkind = "section"\n'
                                   f'peers = "{folder}/peers"\nallow_private = true\n')
                        for at, address in enumerate(self.addresses)]
        self.relay(stack, "home", own, f'forward = ["group"]\n[[listener]]\nbind = "127.0.0.1:{self.port}"\nkind = "tcp"\n'
                   f'target = "127.0.0.1:{server}"\n[[relay]]\nname = "group"\nkey = "{public}"\nbalance = "{balance}"\n'
                   f'address = {json.dumps(self.addresses)}\n')

    def key(self, name):
        path, text = f"{self.folder}/{name}.key", run(ekiden_binary(), "keygen")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write(text)
        return path, text.split("public-key: ")[1].strip()

    def relay(self, stack, name, key, more):
        path = f"{self.folder}/{name}.toml"
        with open(path, "w") as f:
            f.write(f'version = 1\nthreads = 1\nprivate_key = "{key}"\n{more}[admin]\nbind = "unix:{self.folder}/{name}.sock"\n'
                    f'[log]\nlevel = "problems"\n')
        return Process(stack, self.folder, [ekiden_binary(), "run", "-c", path])

    def wait_ready(self):
        for _ in range(200):
            try:
                if all(admin.total(self.home, "ekiden_ready", relay=f"group@{address}") for address in self.addresses):
                    return
            except Trouble:
                pass
            time.sleep(0.1)
        sys.exit(f"bench: the relays do not find each other: see {self.folder}/log")

    def chosen(self):
        """Returns the number of sessions that each member has received since the start."""
        text, name = admin.metrics(self.home), "ekiden_ready_connections_total"
        pattern = r'^{}{{relay="group@{}",result="(?:hit|miss|reused)"}} (\d+)'
        return [sum(map(int, re.findall(pattern.format(name, re.escape(address)), text, re.MULTILINE))) for address in self.addresses]


class Load:
    """Consecutive phases of new sessions."""

    def __init__(self, group, rate, program):
        self.group, self.rate, self.program = group, rate, program
        self.phases = []

    def run(self, name, seconds):
        argv = [self.program, "127.0.0.1", str(self.group.port), str(self.rate), str(seconds), "", str(origin.SMALL_BYTES)]
        before, begun = self.group.chosen(), time.monotonic()
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        time.sleep(max(0.0, begun + seconds - time.monotonic()))
        self.phases.append((name, process, [after - first for first, after in zip(before, self.group.chosen())]))

    def results(self):
        """Waits for the last answers. Returns (name, figures of the sessions, shares of the members in percent) for
        each phase."""
        found = []
        for name, process, chosen in self.phases:
            output, _ = process.communicate(timeout=60)
            found.append((name, json.loads(output), [100 * each / max(1, sum(chosen)) for each in chosen]))
        return found


def measure(options, folder, stack):
    group = Group(stack, folder, options.balance)
    group.wait_ready()
    load = Load(group, options.rate, command.build("open_loop", folder))
    load.run("warm-up", WARM_UP_SECONDS)
    load.run("all equal", options.seconds)
    over = threading.Event()
    slowing = threading.Thread(target=group.members[SLOWED].slow_down, args=(over,))
    group.members[KILLED].kill()
    slowing.start()
    try:
        load.run("first second", 1)
        load.run("second second", 1)
        load.run("from then on", options.seconds)
        return load.results()[1:]
    finally:
        over.set()
        slowing.join()


def largest_deviation(shares):
    """Returns the largest deviation of a share from the mean, in percent of the mean."""
    mean = sum(shares) / len(shares)
    return max(abs(share - mean) for share in shares) * 100 / mean


def bars(phases):
    equal, _, second, last = (shares for _, _, shares in phases)
    others = [share for at, share in enumerate(last) if at not in (KILLED, SLOWED)]
    failed = sum(figures["failed"] for _, figures, _ in phases[2:])
    return [("shares of four equal members, largest distance from the mean", f"{largest_deviation(equal):.1f} %", largest_deviation(equal) <= EQUAL_SHARE),
            ("failed sessions of those that begin after the first second", str(failed), failed == 0),
            ("share of the slowed member after two seconds", f"{last[SLOWED]:.1f} %", last[SLOWED] < SLOW_SHARE),
            ("shares of the others, largest distance from the mean", f"{largest_deviation(others):.1f} %", largest_deviation(others) <= EQUAL_SHARE)]


def page(options, loads, phases):
    if "ekiden" in platform.release():
        machine = f"Linux {platform.release()} in virtual time, in which programs use no time: the slowed member is slow while it is stopped"
    else:
        machine = (f"{time.strftime('%Y-%m-%d')}, Linux {platform.release()}, {os.cpu_count()} cores, load average {loads[0]:.1f} before and "
                   f"{loads[1]:.1f} after")
    lines = ["# A group of relays, measured", "",
             f"Written by `make bench-group` (benches/group.py): {options.rate:,} new sessions a second through a relay with a group of "
             f"{MEMBERS} (`balance = \"{options.balance}\"`), each a request of {origin.SMALL_BYTES} bytes on a connection of its own. After "
             f"{options.seconds} s, member {KILLED + 1} is killed, and member {SLOWED + 1} runs for {1000 * RUNNING:.0f} of every "
             f"{1000 * PERIOD:.0f} ms. {machine}.", ""]
    rows = [[name, str(figures["sessions"]), str(figures["failed"]), *(f"{share:.1f} %" for share in shares),
             *(f"{figures[quantile] / 1000:.1f}" for quantile in ("p50", "p99", "most"))] for name, figures, shares in phases]
    heads = ["phase", "sessions", "failed", *(f"member {at + 1}" for at in range(MEMBERS)), "median, ms", "99th percentile, ms", "longest, ms"]
    lines += markdown_table(heads, rows)
    wanted = [f"<= {EQUAL_SHARE} %", "0", f"< {SLOW_SHARE} %", f"<= {EQUAL_SHARE} %"]
    verdicts = [[bar, measured, want, "met" if met else "**missed**"] for (bar, measured, met), want in zip(bars(phases), wanted)]
    return "\n".join([*lines, "", *markdown_table(["bar", "measured", "wanted", "verdict"], verdicts)]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rate", type=int, default=2000, help="sessions a second")
    parser.add_argument("--seconds", type=int, default=10, help="length of a phase")
    parser.add_argument("--balance", default="least", choices=["least", "client"])
    parser.add_argument("--out", default=os.path.join(command.HERE, "group.md"), help="where the page is written")
    options = parser.parse_args()
    command.stop_on_signals()
    command.raise_file_limit()
    before = os.getloadavg()[0]
    with ExitStack() as stack:
        phases = measure(options, command.temporary(stack), stack)
    command.write(options.out, page(options, (before, os.getloadavg()[0]), phases))
    if not all(met for *_, met in bars(phases)):
        sys.exit("bench: a bar was missed")


if __name__ == "__main__":
    main()
