"""Ten thousand concurrent transparent sessions: all connect, each gets its own address as the answer, and no state
remains after them.

The test runs several passes, like the soak: resources kept for reuse stop growing, leaks do not. With a limit, sessions
above the limit must bypass the relay and complete like the others.
"""

import json
import time
from dataclasses import dataclass, field
from typing import List

from bench import admin, boxes, origin, rounds, speak
from bench.bars import MET, MISSED, Bar
from bench.command import say
from bench.programs import Trouble, output_of
from bench.treatments import EKIDEN, binary_of

COUNT, WARM_UP, LIMIT = 10000, 200, 5000
SETTLE_SECONDS = 15
SPARE_BYTES = 1024  # bytes per session: freed memory may be fragmented, and the allocator returns it late
FILES = 2 * COUNT + 4000  # descriptors that one daemon needs for all sessions


def treatments(files):
    """Returns treatments in one box and in two boxes, and one with a session limit. If the descriptor limit of a
    process is too low, two daemons run in a box, each for one port of the server."""
    ports = (origin.PORT, origin.SECOND_PORT)[:1 if files >= FILES else 2]
    for name, roles, limit in (("1 box", (boxes.NEAR,), COUNT), ("2 boxes", (boxes.NEAR, boxes.FAR), COUNT),
                               (f"1 box, limits.sessions = {LIMIT}", (boxes.NEAR,), LIMIT)):
        name += f", {len(ports)} daemons each" if len(ports) > 1 else ""
        command = boxes.transparent("hold", roles, ports, None if limit == COUNT else limit)
        yield boxes.Box(name, EKIDEN, speak.TCP, "ekiden", command, len(roles) > 1), ports, limit


@dataclass(frozen=True)
class Moment:
    """A sample of one daemon: its descriptors and resident bytes, and the sockets and rules in the kernel of its
    box."""
    files: int
    pipes: int
    resident: int
    sockets: int
    rules: tuple
    elements: int

    @property
    def kept(self):
        """Returns the values that must equal their initial values after a pass. Pipes and memory are excluded because
        they are kept for reuse, and set elements because they remain until they expire."""
        return self.files - self.pipes, self.sockets, self.rules

    def __str__(self):
        return (f"{self.files} descriptors ({self.pipes} of pipes), {self.resident / (1 << 20):.1f} MiB, "
                f"{self.sockets} sockets, rules {self.rules}, {self.elements} elements")


@dataclass
class Crowd:
    """The results of one treatment. All lists have one entry per daemon."""
    treatment: str
    wanted: int  # sessions that each daemon should carry
    share: int  # daemons in a box
    cold: List[Moment]
    refused: int = 0
    wrong: int = 0
    why: str = ""
    seconds: float = 0
    relayed: List[int] = None
    passed: List[int] = None
    busy: List[List[Moment]] = field(default_factory=list)  # one entry per pass, as in `after`
    after: List[List[Moment]] = field(default_factory=list)

    @property
    def troubles(self):
        """Yields the differences from the expected result."""
        if self.refused or self.wrong:
            yield f"{self.refused} refused, {self.wrong} wrong"
        if set(self.relayed) != {self.wanted} or set(self.passed) != {COUNT // self.share - self.wanted}:
            yield "not as many as wanted"
        for number, (cold, last) in enumerate(zip(self.cold, self.after[-1]), 1):
            if last.kept != cold.kept:
                yield f"daemon {number} has {last.kept} and not {cold.kept} descriptors, sockets, rules"
            if last.elements > self.share * len(self.after) * sum(self.passed):  # the table of each daemon contains all
                yield f"daemon {number} has left {last.elements} elements in sets"
        for number, (before, last) in enumerate(zip(*self.busy[-2:]), 1):
            if last.resident > before.resident + self.wanted * SPARE_BYTES:
                yield f"daemon {number} was {(last.resident - before.resident) >> 20} MiB larger in the last pass"

    def bar(self):
        each = sum(b.resident - c.resident for b, c in zip(self.busy[-1], self.cold)) / max(1, sum(self.relayed)) / 1024
        troubles = list(self.troubles)
        found = (f"{COUNT - self.refused - self.wrong:,} right; relayed {added(self.relayed)}, passed by "
                 f"{added(self.passed)}; {each:.1f} KiB each; {'; '.join(troubles) or 'nothing left'}")
        return bar_of(self.treatment, found, not troubles)

    def __str__(self):
        why = f" ({self.why})" if self.why else ""
        parts = "; ".join(f"{name} {', '.join(map(str, moments))}" for name, moments in
                          (("cold", self.cold), ("busiest", self.busy[-1]), ("at the end", self.after[-1])))
        return (f"{COUNT:,} sessions {len(self.after)} times: {self.refused} refused, {self.wrong} wrong{why}, all "
                f"open after {self.seconds:.1f} s; {parts}")


def added(numbers):
    return " + ".join(f"{number:,}" for number in numbers)


def bar_of(name, found, met):
    wanted = "no loss, no leak, limits respected"
    return Bar(f"{COUNT:,} sessions at once, {name}", found, wanted, MET if met else MISSED)


def moments(stand):
    return [moment(stand, *each) for each in zip(stand.relay.programs, stand.relay.steps)]


def moment(stand, program, step):
    files, pipes = program.tree.descriptors()
    sockets = output_of(stand.network, step.role, ["ss", "-Htan", "exclude", "time-wait"], 10).splitlines()
    rules, elements = boxes.left_in_kernel(stand.network, step.role), boxes.elements(stand.network, step.role)
    return Moment(files, pipes, program.tree.resident(), len(sockets), rules, elements)


def settled(stand, cold):
    """Returns samples after the sessions are closed, as soon as they match the `cold` samples, or after a deadline."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while any(now.kept != before.kept for now, before in zip(moments(stand), cold)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return moments(stand)


def open_sessions(stand):
    """Returns the number of sessions of each relay from its metrics. Raises Trouble if `ekiden status` differs."""
    counts = [admin.total(path, "ekiden_sessions_open") for path in stand.admins()]
    for path, count in zip(stand.admins(), counts):
        argv = [binary_of("ekiden"), "status", "--json", "--admin", f"unix:{path}"]
        shown = len(json.loads(output_of(stand.network, "relay", argv, 20))["sessions"])
        if shown != count:
            raise Trouble(f"`ekiden status` shows {shown} of {count} sessions")
    return counts


def passed(stand):
    return [admin.total(path, "ekiden_connections_passed_total") for path in stand.admins()]


def visit(stand, ports, count, while_open):
    """Opens `count` sessions, requests the client address on each, calls `while_open`, and closes them. Returns
    (refused, wrong, why, seconds to open)."""
    start, refused, why = time.monotonic(), 0, ""
    try:
        for port in ports:
            opened = stand.client.ask("open", 60, way=speak.TCP, relay=[stand.treatment.server, port], target=None,
                                      count=count // len(ports))
            refused, why = refused + opened["refused"], why or opened["why"]
        seconds = time.monotonic() - start
        said = stand.client.ask("who", 30, target=[stand.treatment.server, ports[0]], path=origin.WHO)
        while_open()
    finally:
        stand.client.ask("close")
    return refused, said["failed"], why or said["why"], seconds


def crowd(stand, ports, limit):
    """Runs all passes with a newly started treatment."""
    cold = moments(stand)
    visit(stand, ports, WARM_UP, lambda: None)
    found = Crowd(stand.treatment.name, limit // len(ports), len(ports), settled(stand, cold))

    def look():
        found.busy.append(moments(stand))
        found.relayed = open_sessions(stand)
    for _ in range(stand.sizes.passes):
        before = passed(stand)
        refused, wrong, why, found.seconds = visit(stand, ports, COUNT, look)
        found.refused, found.wrong, found.why = found.refused + refused, found.wrong + wrong, found.why or why
        found.passed = [after - earlier for earlier, after in zip(before, passed(stand))]
        found.after.append(settled(stand, found.cold))
    return found


def measure(bench, run, treatment, ports, limit):
    """Returns the bar of one crowd and a note on the results."""
    say(f"crowd of {COUNT:,} sessions: {treatment.name}")
    try:
        stand = bench.start(treatment, rounds.FIRST_PORT + 500)
        with stand.relay:
            found = crowd(stand, ports, limit)
    except Trouble as trouble:
        say(f"!!! crowd failed: {trouble}")
        return bar_of(treatment.name, str(trouble), False)
    run.results.remark(treatment, str(found))
    say(str(found))
    return found.bar()


def bars(bench, run):
    """Returns one row per crowd, or none if no relay is measured."""
    if all(t.kind != EKIDEN for t in run.results.treatments):
        return []
    return [measure(bench, run, *each) for each in treatments(bench.files)]
