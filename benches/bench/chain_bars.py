"""Checks a run against the bars of chains of sections."""

from bench.bars import make_bar, ratio_bar

PLAIN, ENCRYPTED, THREE = "tcp-section", "tcp-section encrypted", "tcp-section-section"
FAILED_MOST, HITS_LEAST, ADDED_MOST = 0, 99, 2000  # sessions, per cent, microseconds


def failed_bar(results):
    """Returns the bar of failures: no session fails in any round."""
    values = results.values.get((PLAIN, "failed"))
    total = sum(values) if values else None
    return make_bar(results, f"failed sessions, {PLAIN}", PLAIN, "failed", "–" if total is None else f"{total:.0f}",
                    f"{FAILED_MOST}", None if total is None else total <= FAILED_MOST)


def hits_bar(results):
    value = results.median(PLAIN, "hits")
    return make_bar(results, f"ready connections hit, {PLAIN}", PLAIN, "hits",
                    "–" if value is None else f"{value:.2f} %", f">= {HITS_LEAST} %",
                    None if value is None else value >= HITS_LEAST)


def added_bar(results, name):
    """Returns the bar of latency: the p99 of the chain minus the median without relays. The value includes stalls of
    the machine, which the p99 of `direct` shows."""
    slow, typical = results.median(name, "slow"), results.median("direct", "typical")
    value = None if slow is None or typical is None else slow - typical
    return make_bar(results, f"p99 to the first byte above direct, {name}", name, "slow",
                    "–" if value is None else f"{value / 1000:.2f} ms", f"<= {ADDED_MOST / 1000:g} ms",
                    None if value is None else value <= ADDED_MOST)


def bars(results):
    return [
        ratio_bar(results, "CPU per GiB of each relay", PLAIN, "tcp-tcp", "each_cpu", 1.05),
        ratio_bar(results, "CPU per GiB of both ends", ENCRYPTED, "ssh -L", "one_cpu", 0.6),
        ratio_bar(results, "CPU per GiB of both ends", ENCRYPTED, "stunnel", "one_cpu", 1.0),
        ratio_bar(results, "1 download", THREE, "tcp", "one_rate", 0.6),
        failed_bar(results),
        hits_bar(results),
        added_bar(results, PLAIN),
    ]
