"""Checks a run against the bars of transparent relays."""

from bench.bars import make_bar, ratio_bar

HOLD, DIRECT, TCP = "hold", "direct", "tcp"
PAIR, DIRECT_PAIR = "hold, 2 boxes", "direct, 2 boxes"
CONNECT_MOST, WAIT_MOST = 1000, 300  # microseconds above an idle box without a relay


def above_bar(results, what, name, key, other, reference, most):
    """Returns the bar for the difference of two medians; `most` is in microseconds."""
    mine, theirs = results.median(name, key), results.median(other, reference)
    value = None if mine is None or theirs is None else mine - theirs
    return make_bar(results, f"{what}, {name}", name, key, "–" if value is None else f"{value / 1000:.2f} ms",
                    f"<= {most / 1000:g} ms", None if value is None else value <= most)


def bars(results):
    return [
        ratio_bar(results, "CPU per GiB, 1 download", HOLD, TCP, "one_cpu", 1.1),
        ratio_bar(results, "CPU per GiB, 64 downloads", HOLD, TCP, "many_cpu", 1.1),
        above_bar(results, "connect above direct (medians)", HOLD, "connect", DIRECT, "connect", CONNECT_MOST),
        above_bar(results, "connect above direct (medians)", PAIR, "connect", DIRECT_PAIR, "connect", CONNECT_MOST),
        above_bar(results, "p99 of datagrams above an idle box, 200 Mbit/s", HOLD, "probe_paced_slow", DIRECT,
                  "probe_idle_slow", WAIT_MOST),
        above_bar(results, "p99 of datagrams above an idle box, 300 sessions/s", HOLD, "probe_short_slow", DIRECT,
                  "probe_idle_slow", WAIT_MOST),
    ]
