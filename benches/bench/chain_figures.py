"""The figures of the sections benchmark. Each belongs to a chain of relays.

`one` is the download of `figures.one` through the whole chain. `sessions` opens new sessions at a fixed rate
(`open_loop.c`), after a warm-up at that rate, and reads from the first relay how often a ready connection was
available.
"""

import json
import re
import time
from dataclasses import dataclass

from bench import admin, chains, figures, netns, origin
from bench.programs import Program, Row, Trouble, output_of
from bench.treatments import BUILT, PEER, binary_of

RATE = 1000  # new sessions per second
LATE = 1000  # microseconds: a note reports a load that opens sessions later than this
CIPHER = re.compile(r"(?:cipher|ciphersuite):? ([A-Z]\w+|\w+-\S+)")  # as ssh -v and stunnel print it
CHECKOUTS = re.compile(r'^ekiden_ready_connections_total\{[^}]*result="(\w+)"[^}]*\} (\d+)', re.MULTILINE)


@dataclass(frozen=True)
class Sizes:
    """Amounts of data and durations of a normal and of a quick run."""
    rounds: int
    large: int
    repeats: int
    repeat_seconds: int
    session_rounds: int
    warm_seconds: int
    session_seconds: int
    curl_seconds: int = 120
    parallel: int = 0  # this benchmark has no figure with 64 downloads


NORMAL = Sizes(rounds=10, large=2 * figures.GIB, repeats=4, repeat_seconds=4, session_rounds=5, warm_seconds=3,
               session_seconds=10)
QUICK = Sizes(rounds=5, large=figures.GIB, repeats=3, repeat_seconds=2, session_rounds=2, warm_seconds=2,
              session_seconds=5)


@dataclass
class Stand(figures.Stand):
    """The test setup of a chain of relays."""

    @property
    def address(self):
        return [netns.RELAY_IP, self.port] if self.relay.programs else [netns.SERVER_IP, origin.PORT]

    def launch(self, treatment, place):
        row = Row()
        try:
            for step in treatment.command(binary_of(treatment.program), place):
                log = f"{self.folder}/{treatment.slug}-{step.port}.log"
                row.programs.append(Program(self.network, "relay", step.argv, log))
                self.wait_for(step.port, row)
        except BaseException:
            row.stop()
            raise
        return row

    def wait_for(self, port, row):
        """Waits until the port listens, without connecting: programs in a chain accept only clients of their own
        protocol."""
        deadline = time.monotonic() + figures.READY_SECONDS
        while not output_of(self.network, "relay", ["ss", "-Hltn", f"sport = :{port}"], 5):
            if not row.is_alive() or time.monotonic() > deadline:
                raise Trouble(f"nothing listens on port {port}; last words: {row.last_words()}")
            time.sleep(0.02)


def one(stand):
    measured = figures.one(stand)
    measured["each_cpu"] = measured["one_cpu"] / len(stand.relay.programs)
    return {**measured, "note": f"cipher {cipher(stand)}"} if stand.treatment.kind == PEER else measured


def cipher(stand):
    """Returns the cipher that the two peers negotiated, from the log of the first one."""
    with open(stand.relay.programs[-1].log, errors="replace") as f:
        found = CIPHER.search(f.read())
    return found.group(1) if found else "unknown"


def checkouts(stand):
    """Returns the checkouts from the pool of the first relay so far: {"hit": N, "reused": N, "miss": N, "stale": N}."""
    text = admin.metrics(chains.admin_socket(stand.folder, stand.port))
    return {result: int(count) for result, count in CHECKOUTS.findall(text)}


def hit_rate(before, after):
    """Returns the hits between two times as a percentage of all checkouts."""
    wanted = sum(after.values()) - sum(before.values())
    if not wanted:
        raise Trouble("the first relay wanted no ready connection, by its /metrics")
    found = {result: after.get(result, 0) - before.get(result, 0) for result in ("hit", "reused")}
    return 100 * sum(found.values()) / wanted


def open_loop(stand, rate, seconds):
    """Returns the command that opens `rate` sessions per second."""
    ip, port = stand.address
    return [BUILT["open_loop"], ip, str(port), str(rate), str(seconds), origin.SMALL, str(origin.SMALL_BYTES)]


def load(stand, rate, seconds):
    """Runs the command and returns its JSON output."""
    return json.loads(output_of(stand.network, "client", open_loop(stand, rate, seconds), seconds + 20))


def remarks(said):
    if said["failed"]:
        yield f"{said['failed']} of {said['sessions']} sessions failed, the first by: {said['why']}"
    if said["late"] > LATE:
        yield f"the load was late: 1 % of the sessions opened {said['late'] / 1000:.1f} ms after their time or later"


def sessions(stand):
    has_pool = "section" in stand.treatment.name
    load(stand, RATE, stand.sizes.warm_seconds)
    before = checkouts(stand) if has_pool else {}
    said, cpu = figures.with_cpu(stand, lambda: load(stand, RATE, stand.sizes.session_seconds))
    measured = {"failed": said["failed"], "typical": said["p50"], "slow": said["p99"]}
    if stand.relay.programs:
        measured["session_cpu"] = cpu / said["sessions"] * 1e6
    if has_pool:
        measured["hits"] = hit_rate(before, checkouts(stand))
    note = "; ".join(remarks(said))
    return {**measured, "note": note} if note else measured


FIGURES = (figures.Figure("one", one), figures.Figure("sessions", sessions))
# The chains with the figure `sessions`; all but `direct` also carry a download.
SESSIONS_THROUGH = ("direct", "tcp-tcp", "tcp-section", "before tcp-section")


def wanted(treatment, names, round_number, sizes):
    """Returns the figures of a chain in a round."""
    for figure in FIGURES:
        through = treatment.name in SESSIONS_THROUGH and round_number < sizes.session_rounds
        if figure.name in names and (through if figure.name == "sessions" else treatment.name != "direct"):
            yield figure
