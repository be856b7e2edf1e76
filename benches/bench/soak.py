"""The soak opens thousands of concurrent active sessions and closes them. It counts refused sessions and leaked
resources.

The soak runs several passes: pools and the allocator's arenas may grow in the first passes, but in the last pass only a
leak grows. The counts of each pass are reported.
"""

import time
from dataclasses import dataclass
from typing import List

from bench import netns, origin
from bench.programs import Trouble

SESSIONS, WARM_UP, PASSES = 5000, 200, 3
STEPS, PAUSE = 8, 0.2
CLIENT_BUFFER = 16 * 1024  # small, so that data are queued in the relay and not in the client's kernel
SETTLE_SECONDS = 15
SPARE_FILES, SPARE_BYTES = 8, 2 << 20


@dataclass(frozen=True)
class Moment:
    files: int
    pipes: int
    resident: int

    def __str__(self):
        return f"{self.files} descriptors ({self.pipes} of pipes), {self.resident / (1 << 20):.1f} MiB"


@dataclass
class Soak:
    treatment: str
    start: Moment
    refused: int = 0
    failed: int = 0
    why: str = ""
    busiest: Moment = None
    after: List[Moment] = None  # one entry per pass

    @property
    def met(self):
        """Returns whether no session was refused or cut, all sockets are closed, and pipes and memory do not exceed
        the reserve for reuse."""
        before, last = self.after[-2], self.after[-1]
        sockets_left = (last.files - last.pipes) - (self.start.files - self.start.pipes)
        return (self.refused == 0 and self.failed == 0
                and sockets_left <= SPARE_FILES
                and last.pipes <= max(self.start.pipes, before.pipes) + SPARE_FILES
                and last.resident <= before.resident + SPARE_BYTES)

    def __str__(self):
        why = f" ({self.why})" if self.why else ""
        return (f"{SESSIONS} sessions {PASSES} times by {self.treatment}: {self.refused} refused, "
                f"{self.failed} failed{why}; before: {self.start}; busiest: {self.busiest}; "
                f"after each time: {'; '.join(map(str, self.after))}")


def moment(tree):
    files, pipes = tree.descriptors()
    return Moment(files, pipes, tree.resident())


def settled(tree, goal, seconds=SETTLE_SECONDS):
    """Returns a sample after the sessions are closed, as soon as at most `goal` descriptors are open, or after a
    deadline."""
    deadline = time.monotonic() + seconds
    while tree.descriptors()[0] > goal and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(0.5)
    return moment(tree)


def busiest(tree):
    """Takes several samples while the sessions transfer data, and returns the sample with the most descriptors."""
    moments = []
    for _ in range(3):
        time.sleep(PAUSE)
        moments.append(moment(tree))
    return max(moments, key=lambda m: m.files)


def one_pass(stand, sessions):
    """Opens all sessions, transfers data and closes them. Returns (refused, failed, why, the busiest sample)."""
    opened = stand.ask("open", count=sessions, buffer=CLIENT_BUFFER, seconds=60)
    try:
        stand.client.tell("download", 60, way=stand.treatment.way, target=[netns.SERVER_IP, origin.PORT],
                          path=origin.SOAK, size=origin.SOAK_BYTES, steps=STEPS, pause=PAUSE)
        busy = busiest(stand.relay.tree)
        moved = stand.client.answer("download", 60)
    finally:
        stand.client.ask("close")
    return opened["refused"], moved["failed"], opened["why"] or moved["why"], busy


def soak(stand):
    tree = stand.relay.tree
    cold = tree.descriptors()[0]
    one_pass(stand, WARM_UP)
    found = Soak(stand.treatment.name, settled(tree, cold, 3), after=[])
    for _ in range(PASSES):
        refused, failed, why, found.busiest = one_pass(stand, SESSIONS)
        found.refused, found.failed, found.why = found.refused + refused, found.failed + failed, found.why or why
        if not stand.relay.is_alive():
            raise Trouble(f"the relay ended, {refused} refused, {failed} failed: {stand.relay.last_words()}")
        found.after.append(settled(tree, found.start.files))
    return found
