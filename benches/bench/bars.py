"""Checks a run against the bars of ekiden, the limits that its figures must meet.

A figure that failed in any round misses its bar.
"""

from dataclasses import dataclass

from bench.results import column
from bench.treatments import EARLIER, EKIDEN

MET, MISSED, UNKNOWN = "met", "**missed**", "not measured"


@dataclass(frozen=True)
class Bar:
    what: str
    figure: str
    wanted: str
    verdict: str


def make_bar(results, what, name, key, figure, wanted, passed):
    """Returns one row for ekiden's treatment `name`; `passed` is None if there is nothing to compare."""
    failed = results.failed(name, key)
    text = figure + (f", failed {failed}x" if failed else "")
    if failed:
        return Bar(what, text, wanted, MISSED)
    return Bar(what, text, wanted, UNKNOWN if passed is None else MET if passed else MISSED)


def ratio_bar(results, what, name, other, key, limit):
    """Compares `name` with `other`: the ratio must be at least `limit` if higher is better, else at most."""
    higher = column(key).higher_is_better
    value = results.ratio(name, other, key)
    passed = None if value is None else value >= limit if higher else value <= limit
    return make_bar(results, f"{what}, {name}", name, key, times(value, other),
                    f"{'>=' if higher else '<='} {limit:g} x {other or 'best peer'}", passed)


def times(value, other):
    return "–" if value is None else f"{value:.2f} x {other}"


def below_every_peer(results, name):
    best = results.best_peer(column("one_cpu"))
    value = results.ratio(name, best, "one_cpu")
    return make_bar(results, f"CPU per GiB below every peer, {name}", name, "one_cpu",
                    times(value, f"{best}, the best"), "< 1 x best peer", None if value is None else value < 1)


def cpu_bars(results, name):
    return [
        ratio_bar(results, "CPU per GiB", name, "splice-loop", "one_cpu", 1.1),
        ratio_bar(results, "CPU per GiB", name, "haproxy", "one_cpu", 0.35),
        below_every_peer(results, name),
    ]


def throughput_bars(results, name):
    return [ratio_bar(results, what, name, results.best_peer(column(key)), key, 1.0)
            for what, key in (("1 download", "one_rate"), ("64 downloads", "many_rate"))]


def earlier_bars(results):
    """Compares the current build with the build that EKIDEN_BEFORE names, in all figures of both."""
    earlier = [t.name for t in results.treatments if t.kind == EARLIER]
    return [ratio_bar(results, what, before.replace("before", "ekiden"), before, key, limit)
            for before in earlier
            for what, key, limit in (("CPU per GiB", "one_cpu", 1.05), ("1 download", "one_rate", 0.95),
                                     ("connections/s", "rate", 0.95), ("small request", "small", 1.05),
                                     ("memory per idle session", "idle", 1.05))
            if results.median(before, key) is not None]


def idle_bar(results, name):
    value = results.median(name, "idle")
    return make_bar(results, f"memory per idle session, {name}", name, "idle",
                    "–" if value is None else f"{value:.1f} KiB", "<= 4 KiB", None if value is None else value <= 4)


def soak_bar(results, soak):
    wanted = "nothing refused, cut or left"
    if soak is None:
        failed = any(figure == "soak" for _, figure in results.failures)
        return Bar("soak, 5,000 sessions", "failed" if failed else "–", wanted, MISSED if failed else UNKNOWN)
    moments = [soak.start, *soak.after]
    files, pipes = (" → ".join(str(getattr(m, key)) for m in moments) for key in ("files", "pipes"))
    memory = " → ".join(f"{m.resident / 2**20:.1f}" for m in moments)
    return Bar(f"soak, 5,000 sessions {len(soak.after)} times, {soak.treatment}",
               f"{soak.refused} refused, {soak.failed} failed; descriptors {files}; of pipes {pipes}; MiB {memory}",
               wanted, MET if soak.met else MISSED)


def bars(results, soak):
    """Returns all bars for all measured treatments of ekiden."""
    names = [t.name for t in results.treatments if t.kind == EKIDEN]
    if not names:
        return [soak_bar(results, soak)] if soak else []
    rows = [bar for name in names for bar in cpu_bars(results, name)]
    rows += [bar for name in names for bar in throughput_bars(results, name)]
    rows.append(ratio_bar(results, "connections/s", "ekiden tcp", "haproxy", "rate", 1.0))
    rows.append(ratio_bar(results, "small request", "ekiden tcp", "haproxy", "small", 1.0))
    rows += [idle_bar(results, name) for name in names]
    rows += earlier_bars(results)
    return rows + [soak_bar(results, soak)]
