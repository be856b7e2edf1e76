"""The figures of the benchmark of transparent relays.

`one` and `many` are those of `figures.py`, with the CPU time of the whole machine: forwarding runs in softirqs of the
box and of both ends, whose time is not charged to any process. `setup` opens sessions at a fixed rate on idle boxes.
`background` sends datagrams through the box while it is under load, see `background.py`.
"""

from dataclasses import dataclass

from bench import admin, background, boxes, figures, measure, netns, origin
from bench.chains import admin_socket
from bench.chain_figures import load, remarks
from bench.programs import Trouble
from bench.treatments import EKIDEN, binary_of

SETUP_RATE = 150  # sessions per second: each session ends before the next one starts


@dataclass(frozen=True)
class Sizes:
    """Amounts of data and durations of a normal and of a quick run."""
    rounds: int
    large: int
    repeats: int
    repeat_seconds: int
    parallel: int
    setup_seconds: int
    background_rounds: int
    probe_seconds: int
    passes: int  # of each crowd
    bulk_seconds: int = 3
    curl_seconds: int = 60


NORMAL = Sizes(rounds=6, large=2 * figures.GIB, repeats=4, repeat_seconds=2, parallel=16 << 20, setup_seconds=2,
               background_rounds=3, probe_seconds=4, passes=6)
QUICK = Sizes(rounds=2, large=figures.GIB // 2, repeats=3, repeat_seconds=1, parallel=8 << 20, setup_seconds=2,
              background_rounds=1, probe_seconds=2, passes=2)


@dataclass
class Stand(figures.Stand):
    """The test setup of one treatment. Clients connect to the server, or to the relay of the treatment `tcp`."""

    @property
    def address(self):
        return [netns.RELAY_IP, self.port] if self.treatment.name == "tcp" else [self.treatment.server, origin.PORT]

    def launch(self, treatment, place):
        row = boxes.Boxes(self.network)
        try:
            for step in treatment.command(binary_of(treatment.program), place):
                row.begin(step, f"{self.folder}/{treatment.slug}-{step.port}.log")
        except BaseException:
            row.stop()
            raise
        return row

    def admins(self):
        """Returns the admin sockets of all relays of the treatment."""
        steps = self.relay.steps if self.treatment.kind == EKIDEN else []
        return [admin_socket(self.folder, step.port) for step in steps]

    def accepted(self):
        """Returns the number of sessions that each relay has accepted."""
        return [admin.total(path, "ekiden_sessions_accepted_total") for path in self.admins()]


def relayed(stand, before, count):
    """Raises Trouble unless each relay has accepted `count` sessions since `before`: a measurement in which traffic
    bypassed a relay is invalid."""
    had = [after - earlier for earlier, after in zip(before, stand.accepted())]
    if any(each < count for each in had):
        raise Trouble(f"of {count} sessions the relays had {had}")


def with_machine(stand, size, work):
    """Returns the result of `work` with the CPU seconds per GiB of the whole machine."""
    before = measure.machine_cpu()
    measured = work(stand)
    measured["machine_cpu"] = (measure.machine_cpu() - before) / (size / figures.GIB)
    return measured if stand.relay.programs else {k: v for k, v in measured.items() if k not in ("one_cpu", "many_cpu")}


def one_download(stand):
    return with_machine(stand, stand.sizes.large, figures.one_download)


def one(stand):
    measured, relays = figures.one(stand, one_download), len(stand.relay.programs)
    return {**measured, "each_cpu": measured["one_cpu"] / relays} if relays else measured


def many(stand):
    measured = with_machine(stand, figures.PARALLEL * stand.sizes.parallel, figures.many)
    del measured["machine_cpu"]  # one column is enough
    return measured


def setup(stand):
    before = stand.accepted()
    said = load(stand, SETUP_RATE, stand.sizes.setup_seconds)
    relayed(stand, before, said["sessions"])
    note = "; ".join(remarks(said))
    measured = {"connect": said["connect_p50"], "connect_slow": said["connect_p99"], "first": said["p50"],
                "first_slow": said["p99"]}
    return {**measured, "note": note} if note else measured


def background_of(stand):
    before = stand.accepted()
    measured = background.background(stand)
    relayed(stand, before, background.SESSIONS)
    return measured


FIGURES = (figures.Figure("one", one), figures.Figure("many", many), figures.Figure("setup", setup),
           figures.Figure("background", background_of))
# The treatments with the figure `background`: one forwards the load, the other relays an equal load.
BACKGROUND_OF = ("direct", "hold")


def wanted(treatment, names, round_number, sizes):
    """Yields the figures of a treatment in a round."""
    for figure in FIGURES:
        neighbours = treatment.name in BACKGROUND_OF and round_number < sizes.background_rounds
        if figure.name in names and (figure.name != "background" or neighbours):
            yield figure
