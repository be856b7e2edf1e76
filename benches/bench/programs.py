"""Starts and stops programs in a namespace, and exchanges messages with the agents there."""

import itertools
import json
import os
import select
import subprocess
import sys
import time

from bench.measure import Forest, Tree, new_cgroup

COUNTER = itertools.count(1)
HERE = os.path.dirname(os.path.abspath(__file__))
# A fixed environment: proxy and locale settings of the user must not affect the measurement.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/"}


class Trouble(Exception):
    """A program failed. The message names the program and the cause."""


class Program:
    """A foreground program in a namespace with all its children. Its output is written to a file."""

    def __init__(self, network, role, argv, log, **popen):
        self.log, self.name = log, os.path.basename(argv[0])
        cgroup = new_cgroup(f"{role}-{next(COUNTER)}")
        with open(log, "ab") as out:
            popen = {"stdin": subprocess.DEVNULL, "stdout": out, **popen}
            self.process = subprocess.Popen(network.command(role, argv), stderr=out, env=ENVIRONMENT,
                                            start_new_session=True, preexec_fn=joiner(cgroup), **popen)
        self.tree = Tree(self.process.pid, cgroup)

    def is_alive(self):
        return self.process.poll() is None

    def last_words(self):
        with open(self.log, errors="replace") as f:
            return " | ".join(f.read().strip().splitlines()[-3:])[-400:]

    def stop(self):
        self.tree.end()
        self.process.wait(timeout=10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Row:
    """Programs that form one path, with the interface of a single program. The row may be empty."""

    def __init__(self):
        self.programs = []

    @property
    def tree(self):
        return Forest([p.tree for p in self.programs])

    def is_alive(self):
        return all(p.is_alive() for p in self.programs)

    def last_words(self):
        """Returns the last output of the programs that have ended, or of all if none has ended."""
        said = [p for p in self.programs if not p.is_alive()] or self.programs
        return "; ".join(f"{p.name}: {p.last_words()}" for p in said)

    def stop(self):
        for program in self.programs:
            program.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def joiner(cgroup):
    """Returns the function that moves the child process into its cgroup before exec."""
    if cgroup is None:
        return None
    path = os.path.join(cgroup, "cgroup.procs")

    def join():
        with open(path, "w") as f:
            f.write("0")
    return join


class Agent(Program):
    """A script of the benchmarks that runs in a namespace. Commands and answers are lines of JSON."""

    def __init__(self, network, role, script, log, *arguments):
        argv = [sys.executable, "-B", os.path.join(HERE, script), *map(str, arguments)]
        super().__init__(network, role, argv, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.name = script
        self.pending = b""

    def ask(self, do, seconds=30, **details):
        """Sends a command and returns the answer. Raises Trouble if the agent reports trouble, or after `seconds`."""
        self.tell(do, seconds, **details)
        return self.answer(do, seconds)

    def tell(self, do, seconds, **details):
        line = json.dumps({"do": do, "seconds": seconds, **details}) + "\n"
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except OSError:
            raise Trouble(f"{self.name} ended: {self.last_words()}") from None

    def answer(self, do, seconds):
        answer = json.loads(self._line(do, seconds + 20))
        if "trouble" in answer:
            raise Trouble(f"{do}: {answer['trouble']}")
        return answer

    def _line(self, do, seconds):
        deadline = time.monotonic() + seconds
        while b"\n" not in self.pending:
            left = max(0, deadline - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                raise SystemExit(f"bench: {self.name} did not answer '{do}' in {seconds} s")
            got = os.read(self.process.stdout.fileno(), 65536)
            if not got:
                raise Trouble(f"{self.name} ended: {self.last_words()}")
            self.pending += got
        line, _, self.pending = self.pending.partition(b"\n")
        return line


def output_of(network, role, argv, seconds):
    """Returns the output of a short program (curl, wrk). Raises Trouble if it fails or takes too long."""
    try:
        done = subprocess.run(network.command(role, argv), capture_output=True, text=True, timeout=seconds,
                              env=ENVIRONMENT, stdin=subprocess.DEVNULL, start_new_session=True)
    except subprocess.TimeoutExpired:
        raise Trouble(f"{argv[0]} took more than {seconds} s") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Trouble(f"{argv[0]} exit {done.returncode}: {' '.join(words)}")
    return done.stdout
