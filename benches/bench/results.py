"""The results of a run: values per treatment and column, their medians, and the best peer."""

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass

from bench.treatments import PEER


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    figure: str
    higher_is_better: bool
    digits: int


COLUMNS = (
    Column("one_rate", "1 download, Gbit/s", "one", True, 2),
    Column("one_cpu", "1 download, CPU s/GiB", "one", False, 3),
    Column("many_rate", "64 downloads, Gbit/s", "many", True, 2),
    Column("many_cpu", "64 downloads, CPU s/GiB", "many", False, 3),
    Column("small", "small request on a new connection, median, µs", "small", False, 0),
    Column("small_slow", "p99, µs", "small", False, 0),
    Column("kept", "on a kept connection, median, µs", "kept", False, 0),
    Column("kept_slow", "p99, µs", "kept", False, 0),
    Column("rate", "connections/s", "rate", True, 0),
    Column("rate_cpu", "CPU µs/connection", "rate", False, 0),
    Column("idle", "idle session, KiB", "idle", False, 1),
    Column("each_cpu", "CPU s/GiB of each relay", "one", False, 3),
    Column("failed", "failed sessions", "sessions", False, 0),
    Column("hits", "ready connections hit, %", "sessions", True, 2),
    Column("typical", "first byte, median, µs", "sessions", False, 0),
    Column("slow", "first byte, p99, µs", "sessions", False, 0),
    Column("session_cpu", "CPU µs/session", "sessions", False, 0),
    Column("machine_cpu", "1 download, CPU s/GiB of the machine", "one", False, 3),
    Column("connect", "connect, median, µs", "setup", False, 0),
    Column("connect_slow", "connect, p99, µs", "setup", False, 0),
    Column("first", "first byte, median, µs", "setup", False, 0),
    Column("first_slow", "first byte, p99, µs", "setup", False, 0),
    Column("probe_idle", "idle box: datagram there and back, median, µs", "background", False, 0),
    Column("probe_idle_slow", "p99, µs", "background", False, 0),
    Column("probe_paced", "1,000 sessions at 200 Mbit/s: median, µs", "background", False, 0),
    Column("probe_paced_slow", "p99, µs", "background", False, 0),
    Column("probe_short_slow", "300 new sessions/s: p99, µs", "background", False, 0),
    Column("probe_late", "sent late, p99, µs", "background", False, 0),
    Column("bulk", "idle box: forwarded download, Gbit/s", "background", True, 2),
    Column("bulk_crowded", "beside 1,000 sessions, Gbit/s", "background", True, 2),
)


class Results:
    def __init__(self, treatments):
        self.treatments = treatments
        self.values = defaultdict(list)  # (treatment name, column key) -> one value per round
        self.failures = Counter()  # (treatment name, figure name) -> number of failures
        self.notes = []

    def add(self, treatment, measured):
        note = measured.pop("note", None)
        if note:
            self.remark(treatment, note)
        for key, value in measured.items():
            self.values[treatment.name, key].append(value)

    def remark(self, treatment, text):
        self.notes.append(f"{treatment.name}: {text}")

    def fail(self, treatment, figure, trouble):
        self.failures[treatment.name, figure] += 1
        self.remark(treatment, f"{figure} failed: {trouble}")

    def failed(self, name, key):
        return self.failures[name, column(key).figure]

    def median(self, name, key):
        values = self.values.get((name, key))
        return statistics.median(values) if values else None

    def ratio(self, name, other, key):
        mine, theirs = self.median(name, key), self.median(other, key)
        return mine / theirs if mine is not None and theirs else None

    def best_peer(self, column):
        """Returns the name of the best peer by the median of a column, or None."""
        peers = [(self.median(t.name, column.key), t.name) for t in self.treatments if t.kind == PEER]
        peers = [p for p in peers if p[0] is not None]
        if not peers:
            return None
        return (max if column.higher_is_better else min)(peers)[1]

    def columns(self):
        """Returns the columns with at least one value or failure."""
        tried = {key for _, key in self.values} | {c.key for c in COLUMNS for _, f in self.failures if f == c.figure}
        return [c for c in COLUMNS if c.key in tried]


def column(key):
    return next(c for c in COLUMNS if c.key == key)
