#!/usr/bin/env python3
"""Counts the system calls of one relay hop: for a session of one small request, and for each GiB of a download.

    python3 benches/calls.py [--only NAME,...] [--default-control NAME] [--out FILE.md]

Needs root, for network namespaces and for the tracepoints of system calls, which perf counts. EKIDEN_BEFORE in the environment names an earlier build of ekiden to count as well.
"""

import os
import signal
import subprocess
import time
from contextlib import ExitStack

from bench import command, figures, origin, rounds, stage, table, treatments
from bench.command import say
from bench.programs import Trouble

NEEDED = ("ip", "nginx", "curl", "cc", "sysctl", "perf")
PLAN = stage.Plan(treatments.TREATMENTS, ("splice_loop",))
DEFAULT = ["splice-loop", "ekiden-tcp", "before-tcp", "haproxy-tuned"]
REQUESTS, DOWNLOADS = 500, 10
TOTAL, PREFIX = "raw_syscalls:sys_enter", "syscalls:sys_enter_"
CALLS = ("accept4", "clock_nanosleep", "close", "connect", "epoll_ctl", "epoll_pwait", "epoll_wait", "fcntl", "futex",
         "getsockopt", "ioctl", "pipe2", "read", "recvfrom", "recvmsg", "sendmsg", "sendto", "setsockopt", "shutdown",
         "socket", "splice", "write")
WAITS = ("epoll_wait", "epoll_pwait")
TITLE = "System calls of one relay hop, counted"
ABOUT = ("Written by `make bench-calls` (benches/calls.py) with the kernel's tracepoints: each request on a new connection, one after another, "
         f"and {DOWNLOADS} downloads, one after another. Calls that a relay makes on a timer are in both.")


class Counter:
    """Counts the system calls of a running relay with perf, from entry to exit of the context."""

    def __init__(self, stand):
        self.path = f"{stand.folder}/calls-{time.monotonic_ns()}"
        self.ready, signal_ready = os.pipe()
        from_us, self.control = os.pipe()
        events = ",".join([TOTAL, *(PREFIX + name for name in CALLS)])
        processes = ",".join(map(str, stand.relay.tree.pids()))
        argv = ["perf", "stat", "-x", ",", "-o", self.path, "-D", "-1", "--control", f"fd:{from_us},{signal_ready}", "-e", events,
                "-p", processes]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, pass_fds=(from_us, signal_ready))
        os.close(from_us)
        os.close(signal_ready)

    def __enter__(self):
        os.write(self.control, b"enable\n")
        if not os.read(self.ready, 16).startswith(b"ack"):
            raise Trouble(f"perf: {self.process.communicate()[1].decode().strip()}")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=10)
        os.close(self.ready)
        os.close(self.control)

    def counts(self):
        """Returns the count of each call in CALLS, and of all other calls together."""
        with open(self.path) as f:
            fields = [line.split(",") for line in f if line[:1].isdigit()]
        found = {event.removeprefix(PREFIX): int(count) for count, _, event, *_ in fields}
        total = found.pop(TOTAL)
        return found | {"other calls": total - sum(found.values())}


def counted(stand, work):
    """Returns the count of each call per unit of work; `work` returns the number of units."""
    with Counter(stand) as counter:
        units = work()
    return {name: count / units for name, count in counter.counts().items()}


def measure(bench, run, treatment):
    """Returns the counts of calls per session and per GiB."""
    with ExitStack() as stack:
        stand = bench.start(treatment, rounds.first_port(run, treatment))
        stack.enter_context(stand.relay)

        def sessions():
            return stand.ask("small", path=origin.SMALL, size=origin.SMALL_BYTES, count=REQUESTS, seconds=60)["requests"]

        def gibibytes():
            for _ in range(DOWNLOADS):
                figures.one_download(stand)
            return DOWNLOADS * stand.sizes.large / figures.GIB

        sessions()
        return counted(stand, sessions), counted(stand, gibibytes)


def rows(found, at, digits):
    """Returns a row for each call that some relay makes, one for the sum, and one for the calls that wait."""
    names = sorted({name for result in found.values() for name in result[at]},
                   key=lambda name: -max(result[at].get(name, 0) for result in found.values()))
    lines = [[name] + [f"{result[at].get(name, 0):.{digits}f}" for result in found.values()] for name in names]
    lines = [line for line in lines if any(float(cell) for cell in line[1:])]
    waits = ["of them waits"] + [f"{sum(result[at].get(name, 0) for name in WAITS):.{digits}f}" for result in found.values()]
    return lines + [["all"] + [f"{sum(result[at].values()):.{digits}f}" for result in found.values()], waits]


def page(run, found):
    heads = list(found)
    return "\n".join([
        *table.header(run, TITLE, ABOUT, ("nginx", "curl")), "",
        "## A session of one small request", "", *table.markdown_table(["call", *heads], rows(found, 0, 1)), "",
        "## One GiB of a download", "", *table.markdown_table(["call", *heads], rows(found, 1, 0)), ""])


def main():
    options = command.options(__doc__, treatments.TREATMENTS, [], "calls.md")
    options.only = options.only or DEFAULT
    files = stage.begin(NEEDED)
    with ExitStack() as stack:
        run, parts = stage.set_up(stack, PLAN, options, figures.QUICK, files)
        bench, found = figures.Stand(*parts), {}
        for treatment in run.results.treatments:
            found[treatment.name] = measure(bench, run, treatment)
            say(f"{treatment.name}: {sum(found[treatment.name][0].values()):.1f} calls for each session")
        run.rounds, run.rounds_done = 1, 1
        command.write(options.out, page(run, found))


if __name__ == "__main__":
    main()
