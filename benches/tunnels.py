#!/usr/bin/env python3
"""Measures one relay with 200,000 idle tunnels, each of which has carried one byte in each direction.

    python3 benches/tunnels.py [--count N] [--out FILE.md]

Needs root, for network namespaces, and 8 GiB of memory. If a process may not have 400,000 descriptors, the tunnels are
divided among several relays. EKIDEN in the environment names another binary.
"""

import argparse
import os
import resource
import time
from contextlib import ExitStack

from bench import admin, command, netns
from bench.command import say
from bench.measure import Forest
from bench.programs import Agent, Program, Trouble, output_of
from bench.table import markdown_table
from bench.treatments import ekiden_binary, version_of

FIRST_PORT = 7000
OTHER_FILES = 3000  # descriptors of a relay for other purposes than tunnels
WARM_UP = 100  # tunnels through each relay before the first measurement of memory
ANSWER_SECONDS = 60
SILENT_SECONDS = 5


class Lane:
    """A client, a relay and a server. The descriptor limit of a process limits their number of tunnels."""

    def __init__(self, stack, network, folder, number):
        self.port = FIRST_PORT + number
        self.admin, log = f"{folder}/admin-{number}.sock", f"{folder}/log-{number}"
        self.server = stack.enter_context(Agent(network, "server", "tunnel_ends.py", log, "server", self.port))
        self.client = stack.enter_context(Agent(network, "client", "tunnel_ends.py", log, "client"))
        argv = [ekiden_binary(), "run", "-c", self.configuration(folder)]
        self.relay = stack.enter_context(Program(network, "relay", argv, log))

    def configuration(self, folder):
        path = os.path.join(folder, f"ekiden-{self.port}.toml")
        with open(path, "w") as f:
            f.write(f'version = 1\n[admin]\nbind = "unix:{self.admin}"\n[limits]\nsessions = 1000000\n'
                    f'sessions_per_client = 1000000\n[[listener]]\nbind = "{netns.RELAY_IP}:{self.port}"\nkind = "tcp"\n'
                    f'target = "{netns.SERVER_IP}:{self.port}"\nallow_open = true\nallow_private = true\n')
        return path

    def warm_up(self):
        self.server.answer("listen", 20)
        deadline = time.monotonic() + 20
        while not self.answers():
            if time.monotonic() > deadline or not self.relay.is_alive():
                raise Trouble(f"the relay does not answer: {self.relay.last_words()}")
            time.sleep(0.05)
        if self.open(WARM_UP)["failed"]:
            raise Trouble(f"the first tunnels have failed: {self.relay.last_words()}")

    def answers(self):
        try:
            return admin.metrics(self.admin)
        except Trouble:
            return None

    def open(self, count):
        return self.client.ask("open", ANSWER_SECONDS, relay=[netns.RELAY_IP, self.port], count=count)


def timed(work):
    start = time.monotonic()
    result = work()
    return result, time.monotonic() - start


def tcp_memory(network):
    """Returns the memory of all TCP buffers of the machine in MiB."""
    words = output_of(network, "relay", ["cat", "/proc/net/sockstat"], 10).split()
    return int(words[words.index("mem") + 1]) * resource.getpagesize() / (1 << 20)


def measure(stack, network, folder, count, files):
    """Returns (figure, value) pairs."""
    number = -(-2 * count // (files - OTHER_FILES))
    lanes = [Lane(stack, network, folder, at) for at in range(number)]
    for lane in lanes:
        lane.warm_up()
    relays = Forest([lane.relay.tree for lane in lanes])
    each = count // number - WARM_UP
    added, resident, cpu = each * number, relays.resident(), relays.cpu()
    opened, seconds = timed(lambda: [lane.open(each) for lane in lanes])
    say(f"{added + WARM_UP * number:,} tunnels after {seconds:.0f} s")
    memory, cpu, silent = relays.resident() - resident, relays.cpu() - cpu, relays.cpu()
    time.sleep(SILENT_SECONDS)
    silent = (relays.cpu() - silent) / SILENT_SECONDS
    ask = [ekiden_binary(), "status", "--admin", f"unix:{lanes[-1].admin}"]
    status, status_seconds = timed(lambda: output_of(network, "relay", ask, ANSWER_SECONDS))
    known, metrics_seconds = timed(lambda: [admin.total(lane.admin, "ekiden_sessions_open") for lane in lanes])
    again, again_seconds = timed(lambda: [lane.client.ask("again", ANSWER_SECONDS) for lane in lanes])
    failed = sum(answer["failed"] for answer in opened + again)
    return [
        ("relays", f"{number} of {each + WARM_UP:,} tunnels each"),
        ("tunnels open; failed", f"{sum(answer['open'] for answer in again):,}; {failed}"),
        ("sum of `ekiden_sessions_open`", f"{sum(known):,}"),
        ("memory of a relay for each tunnel, KiB", f"{memory / added / 1024:.2f}"),
        ("TCP buffers of the machine, MiB", f"{tcp_memory(network):.0f}"),
        ("tunnels opened a second, by one client", f"{added / seconds:,.0f}"),
        ("CPU time of a relay to open one, µs", f"{cpu / added * 1e6:.0f}"),
        ("CPU time of all relays while all tunnels are silent", f"{silent * 100:.1f} % of a core"),
        ("`ekiden status` of one relay, s (lines)", f"{status_seconds:.2f} ({len(status.splitlines()):,})"),
        ("`/metrics` of all relays, s", f"{metrics_seconds:.2f}"),
        ("one byte more through each tunnel, s", f"{again_seconds:.1f}"),
    ]


def page(rows, count):
    return "\n".join([
        f"# {count:,} idle tunnels, measured", "",
        f"Written by benches/tunnels.py with {version_of('ekiden')}, Linux {os.uname().release}, {os.cpu_count()} cores. Clients, the "
        "relay and servers are in three network namespaces. Each tunnel has carried one byte each way and is silent.", "",
        *markdown_table(("figure", "value"), rows), ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=200_000, help="how many tunnels")
    parser.add_argument("--out", default=os.path.join(command.HERE, "tunnels.md"), help="where the page is written")
    options = parser.parse_args()
    command.demand_root_and_programs(("ip", "sysctl"))
    files = command.raise_file_limit(2 * options.count + OTHER_FILES)
    command.stop_on_signals()
    command.sweep()
    with ExitStack() as stack:
        network = stack.enter_context(netns.Network())
        rows = measure(stack, network, command.temporary(stack), options.count, files)
    command.write(options.out, page(rows, options.count))


if __name__ == "__main__":
    main()
