"""Starting and ending programs inside a namespace, and talking to our own small agents there."""

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
# Nothing of the user's shell (proxies, locales) reaches what is measured.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/"}


class Trouble(Exception):
    """A program did not do what the benchmark needs; says which and why."""


class Program:
    """One program in the foreground inside a namespace, with its output in a file and all its children."""

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
    """Programs that make one path together, used like one; it may have none."""

    def __init__(self):
        self.programs = []

    @property
    def tree(self):
        return Forest([p.tree for p in self.programs])

    def is_alive(self):
        return all(p.is_alive() for p in self.programs)

    def last_words(self):
        """Of those that have ended, or of all."""
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
    """What a child does before it becomes the program: move itself into its cgroup."""
    if cgroup is None:
        return None
    path = os.path.join(cgroup, "cgroup.procs")

    def join():
        with open(path, "w") as f:
            f.write("0")
    return join


class Agent(Program):
    """One of our own scripts inside a namespace: a line of JSON asks, a line of JSON answers."""

    def __init__(self, network, role, script, log, *arguments):
        argv = [sys.executable, "-B", os.path.join(HERE, script), *map(str, arguments)]
        super().__init__(network, role, argv, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.name = script
        self.pending = b""

    def ask(self, do, seconds=30, **details):
        """The answer; Trouble when it says so. `seconds` is how long the agent may take."""
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
    """What a short program (curl, wrk) printed, Trouble when it failed or took too long."""
    try:
        done = subprocess.run(network.command(role, argv), capture_output=True, text=True, timeout=seconds,
                              env=ENVIRONMENT, stdin=subprocess.DEVNULL, start_new_session=True)
    except subprocess.TimeoutExpired:
        raise Trouble(f"{argv[0]} took more than {seconds} s") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Trouble(f"{argv[0]} exit {done.returncode}: {' '.join(words)}")
    return done.stdout
