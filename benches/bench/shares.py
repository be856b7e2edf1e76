"""The measurements of benches/share.py. Runs on the host `relay` of the lab and prints the figures as JSON.

Both endpoints are started on their hosts with `on HOST COMMAND...` of the lab's shell.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from bench.measure import process_clock  # noqa: E402

ENDS = [sys.executable, os.path.join(HERE, "share_ends.py")]
CONTROLS = ("bbr", "cubic", "reno")
SERVER_PORT, IDLE_PORT, FIRST_PORT = 8000, 8009, 8001
STEP = 0.05  # seconds, as in share_ends.py
SHARED = "19.6Mbit/s"  # 98 % of the link between relay and client
SETTLED = 5.0  # seconds before shares are measured


def say(*what):
    print("bench:", *what, file=sys.stderr, flush=True)


def listener(port, server, more):
    return (f'[[listener]]\nname = "l{port}"\nbind = "0.0.0.0:{port}"\nkind = "tcp"\ntarget = "{server}"\n'
            f"allow_open = true\nallow_private = true\n{more}\n")


def config(folder, interface, rate):
    """Returns a configuration with one listener per congestion control, and one listener whose targets are on this
    host."""
    text = f'version = 1\nthreads = 2\n[admin]\nbind = "unix:{folder}/admin.sock"\n'
    if interface:
        text += f'[[interface]]\nname = "{interface}"\nrate = "{rate}"\n'
    server = f"{os.environ['SHARE_SERVER']}:{SERVER_PORT}"
    for number, control in enumerate(CONTROLS):
        text += f'[profile.{control}]\ncongestion = "{control}"\nnodelay = true\n'
        text += listener(FIRST_PORT + number, server, f'profile = "{control}"')
        text += listener(FIRST_PORT + 10 + number, server, f'profile = "{control}"\nweight = 3')
    text += listener(IDLE_PORT, f"127.0.0.1:{SERVER_PORT}", "")
    path = f"{folder}/ekiden.toml"
    with open(path, "w") as f:
        f.write(text)
    return path


class Relay:
    """An ekiden relay with or without shares of an interface."""

    def __init__(self, folder, interface=None, rate=SHARED):
        self.binary, self.admin = os.environ["SHARE_EKIDEN"], f"unix:{folder}/admin.sock"
        argv = [self.binary, "run", "-c", config(folder, interface, rate)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if f"listener=l{IDLE_PORT}" in line:
                break

    def status(self):
        argv = [self.binary, "status", "--json", "--admin", self.admin]
        return json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)

    def cpu(self):
        return process_clock(self.process.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def port_of(control, weight=1):
    return FIRST_PORT + CONTROLS.index(control) + (10 if weight == 3 else 0)


def start(downloads, seconds):
    """Starts the downloads, tuples of (congestion control, weight, start, end), on the client."""
    where = os.environ["SHARE_RELAY"]
    plan = [[[where, port_of(control, weight)], begin, end] for control, weight, begin, end in downloads]
    running = subprocess.Popen(["on", "client", *ENDS, "client"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    running.stdin.write(json.dumps({"downloads": plan, "seconds": seconds}))
    running.stdin.close()
    return running


def arrivals(running):
    steps = json.load(running.stdout)
    running.wait()
    return steps


def rates(steps, begin, end):
    """Returns the rate of each download in Mbit/s between two times."""
    first, last = int(begin / STEP), int(end / STEP) - 1
    return [(one[last] - one[first]) * 8 / ((last - first) * STEP) / 1e6 for one in steps]


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(v * v for v in values))


def shares(folder, interface, sections, seconds):
    """Measures the rate of each download, the fairness of the rates relative to the weights, and the round-trip
    times."""
    say("shares", sections, interface)
    with Relay(folder, interface) as relay:
        running = start([(control, weight, 0, seconds) for control, weight in sections], seconds)
        time.sleep(SETTLED)
        rtts = []
        while running.poll() is None and len(rtts) < (seconds - SETTLED - 1) / 0.5:
            rtts += [s["down"]["rtt_seconds"] * 1000 for s in relay.status()["sessions"] if s["down"]]
            time.sleep(0.5)
        got = rates(arrivals(running), SETTLED, seconds)
    weights = [weight for _, weight in sections]
    return {"got": got, "sum": sum(got), "jain": jain([g / w for g, w in zip(got, weights)]),
            "rtt": statistics.median(rtts) if rtts else None}


def reaction(folder, interface, first, second):
    """Measures the time in seconds until a new download has its share, and, after the new download ends, until the
    first download has the full rate again."""
    say("reaction", first, second, interface)
    comes, goes, seconds = 5.0, 15.0, 20.0
    with Relay(folder, interface):
        running = start([(first, 1, 0, seconds), (second, 1, comes, goes)], seconds)
        steps = arrivals(running)
    alone = rates(steps, 3, comes)[0]
    window = 0.3  # seconds: averaging time of a rate

    def until(since, holds):
        at = since
        while at + window < seconds:
            if holds(rates(steps, at, at + window)):
                return round(at - since, 2)
            at += STEP
        return None

    came = until(comes, lambda r: abs(r[0] - r[1]) <= 0.2 * alone)
    return {"joins": came, "leaves": until(goes, lambda r: r[0] >= 0.9 * alone)}


def crowd_cpu(folder, interface, count, downloads, seconds):
    """Measures the CPU time of the relay with `count` idle sections, in per cent of a core."""
    say("cpu", count, downloads, interface)
    with Relay(folder, interface, "1Gbit/s" if interface == "lo" else SHARED) as relay:
        argv = [*ENDS, "crowd", str(IDLE_PORT), str(count)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as idle:
            idle.stdout.readline()
            running = start([("cubic", 1, 0, seconds + 4)] * downloads, seconds + 4) if downloads else None
            time.sleep(3)
            before = relay.cpu()
            time.sleep(seconds)
            used = (relay.cpu() - before) / seconds * 100
            if running:
                running.kill()
                running.wait()
            idle.stdin.close()
    return used


def measure(folder, interface, files, quick):
    seconds, rounds = (12, 1) if quick else (25, 3)
    # A session has two descriptors; 300 sessions' descriptors are left for other purposes.
    idle = min(1000 if quick else 10000, files // 2 - 300)
    hands = [None, interface]
    single = [(control, 1) for control in CONTROLS]
    weighed = [("cubic", 1), ("bbr", 3), ("reno", 1)]
    many = [(control, 1) for control in CONTROLS for _ in range(5)]
    found = {"shares": [], "reaction": [], "cpu": []}
    for _ in range(rounds):
        for hand in hands:
            for name, sections in (("one of each", single), ("five of each", many), ("BBR has weight 3", weighed)):
                if hand or name != "BBR has weight 3":
                    found["shares"].append({"hand": bool(hand), "name": name, "sections": sections,
                                            **shares(folder, hand, sections, seconds)})
            for first, second in (("cubic", "cubic"), ("bbr", "cubic"), ("cubic", "bbr"), ("cubic", "reno")):
                found["reaction"].append({"hand": bool(hand), "first": first, "second": second,
                                          **reaction(folder, hand, first, second)})
        for place, downloads in (("idle", 0), ("one download", 1), ("200 downloads", 200)):
            for hand in (None, "lo" if place == "idle" else interface):
                cpu = crowd_cpu(folder, hand, idle, downloads, 5 if quick else 10)
                found["cpu"].append({"hand": bool(hand), "name": f"{idle:,} idle, {place}", "cpu": cpu})
    return found


def main():
    folder, interface, quick = sys.argv[1], sys.argv[2], sys.argv[3] == "quick"
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    servers = [subprocess.Popen(argv) for argv in (["on", "server", *ENDS, "server", str(SERVER_PORT)],
                                                   [*ENDS, "server", str(SERVER_PORT)])]
    time.sleep(1)
    try:
        found = measure(folder, interface, files, quick)
    finally:
        for server in servers:
            server.kill()
    with open(f"{folder}/found.json", "w") as f:
        json.dump(found, f)


if __name__ == "__main__":
    main()
