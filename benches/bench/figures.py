"""The figures of a treatment. Each function takes a `Stand` and returns named values.

`one` and `many` measure the time of curl and the CPU time of the relay's process tree. `small` and `kept` use the agent
in `client.py`. `rate` uses wrk, which supports no proxy protocol, so it measures forwarders only. `idle` starts another
relay, because memory freed by earlier work would hide growth.
"""

import re
import statistics
import time
from dataclasses import dataclass, replace
from typing import Callable

from bench import netns, origin, speak
from bench.programs import Program, Trouble, output_of
from bench.treatments import Place, binary_of

GIB = 1 << 30
PARALLEL = 64
IDLE_SESSIONS, IDLE_WARM_UP = 1500, 100
READY_SECONDS = 10


@dataclass(frozen=True)
class Sizes:
    """Amounts of data and durations of a normal and of a quick run."""
    rounds: int
    large: int
    repeats: int  # large downloads per round, while they take less than `repeat_seconds`
    repeat_seconds: int
    parallel: int  # bytes of each of the 64 downloads
    requests: int
    rate_seconds: int
    idle_rounds: int  # memory varies little from round to round
    curl_seconds: int  # timeout of curl in seconds


NORMAL = Sizes(rounds=5, large=2 * GIB, repeats=5, repeat_seconds=3, parallel=16 << 20, requests=1000,
               rate_seconds=4, idle_rounds=3, curl_seconds=60)
QUICK = Sizes(rounds=3, large=GIB // 2, repeats=3, repeat_seconds=1, parallel=8 << 20, requests=300,
              rate_seconds=1, idle_rounds=1, curl_seconds=25)


@dataclass
class Stand:
    """The test setup of a figure: network, server, client agent and one running treatment."""
    network: netns.Network
    server: origin.Origin
    client: object  # the Agent in the client namespace
    sizes: Sizes
    folder: str
    files: int
    treatment: object = None
    relay: Program = None
    port: int = 0

    @property
    def address(self):
        return [netns.RELAY_IP, self.port]

    def start(self, treatment, port, target_port=origin.PORT):
        """Starts a treatment and waits until it listens. The caller must stop the `relay` of the returned stand."""
        place = Place(self.folder, port, (netns.SERVER_IP, target_port), self.files)
        relay = self.launch(treatment, place)
        stand = replace(self, treatment=treatment, relay=relay, port=port)
        try:
            stand.wait_until_ready()
        except Trouble as trouble:
            relay.stop()
            raise Trouble(f"{treatment.name}: {trouble}; its last words: {relay.last_words()}") from None
        except BaseException:
            relay.stop()
            raise
        return stand

    def launch(self, treatment, place):
        argv = treatment.command(binary_of(treatment.program), place)
        return Program(self.network, "relay", argv, f"{self.folder}/{treatment.slug}-{place.port}.log")

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                self.client.ask("ready", seconds=1, relay=self.address)
                return
            except Trouble:
                if not self.relay.is_alive():
                    raise Trouble("ended instead of listening") from None
                if time.monotonic() > deadline:
                    raise Trouble(f"does not listen after {READY_SECONDS} s") from None

    def ask(self, do, target_port=origin.PORT, **details):
        return self.client.ask(do, way=self.treatment.way, relay=self.address,
                               target=[netns.SERVER_IP, target_port], **details)


def curl(stand, path, extra, write_out, scheme="http"):
    """Returns the words that curl prints for `--write-out`. `scheme` is that of the proxy."""
    how, base = speak.curl_arguments(stand.treatment.way, stand.address, (netns.SERVER_IP, origin.PORT), scheme)
    argv = ["curl", "--noproxy", "", "--silent", "--show-error", "--fail", "--output", "/dev/null",
            "--connect-timeout", "5", "--max-time", str(stand.sizes.curl_seconds), "--write-out", write_out,
            *extra, *how, f"{base}/{path}"]
    return output_of(stand.network, "client", argv, stand.sizes.curl_seconds + 10).split()


def with_cpu(stand, work):
    """Returns (result of `work`, CPU seconds of the relay's process tree during `work`)."""
    tree = stand.relay.tree
    processes, before = len(tree.pids()), tree.cpu()
    result = work()
    tree.settle(processes)
    return result, tree.cpu() - before


def one_download(stand):
    def work():
        return curl(stand, origin.LARGE, [], "%{size_download} %{time_total}\n")
    (size, seconds), cpu = with_cpu(stand, work)
    if int(size) != stand.sizes.large:
        raise Trouble(f"curl got {size} bytes, not {stand.sizes.large}")
    return {"one_rate": int(size) * 8 / float(seconds) / 1e9, "one_cpu": cpu / (int(size) / GIB)}


def one(stand, download=one_download):
    """Measures the median of several sequential large downloads, fewer for slow relays."""
    start, values = time.monotonic(), []
    while len(values) < stand.sizes.repeats and time.monotonic() - start < stand.sizes.repeat_seconds:
        values.append(download(stand))
    return {key: statistics.median(v[key] for v in values) for key in values[0]}


def many(stand):
    """Measures 64 concurrent downloads by one curl process, from its start to its end."""
    def work():
        start = time.monotonic()
        extra = ["--parallel", "--parallel-immediate", "--parallel-max", str(PARALLEL)]
        sizes = curl(stand, f"{origin.PARALLEL}?[1-{PARALLEL}]", extra, "%{size_download}\n")
        return sizes, time.monotonic() - start
    (sizes, seconds), cpu = with_cpu(stand, work)
    if sizes != [str(stand.sizes.parallel)] * PARALLEL:
        raise Trouble(f"{sizes.count(str(stand.sizes.parallel))} of {PARALLEL} downloads were complete")
    total = PARALLEL * stand.sizes.parallel
    return {"many_rate": total * 8 / seconds / 1e9, "many_cpu": cpu / (total / GIB)}


def small_requests(stand, do):
    answer = stand.ask(do, path=origin.SMALL, size=origin.SMALL_BYTES, count=stand.sizes.requests, seconds=20)
    return {do: answer["median"] * 1e6, f"{do}_slow": answer["p99"] * 1e6}


def small(stand):
    """Measures a small request on a new connection, including the connect."""
    return small_requests(stand, "small")


def kept(stand):
    """Measures a small request on a connection that has carried earlier requests."""
    return small_requests(stand, "kept")


def rate(stand):
    """Measures new connections per second, each with one small request, and the CPU time per connection."""
    url = f"http://{netns.RELAY_IP}:{stand.port}/{origin.SMALL}"
    seconds = stand.sizes.rate_seconds
    argv = ["wrk", "-H", "Connection: close", "-c", "64", "-t", "2", "-d", f"{seconds}s", url]
    said, cpu = with_cpu(stand, lambda: output_of(stand.network, "client", argv, seconds + 20))
    found = re.search(r"Requests/sec:\s*([\d.]+)", said)
    total = re.search(r"(\d+) requests in", said)
    errors = re.search(r"(Non-2xx.*|Socket errors.*)", said)
    if not found or float(found.group(1)) == 0:
        raise Trouble(f"wrk counted nothing: {' '.join(said.split())[-200:]}")
    result = {"rate": float(found.group(1)), "rate_cpu": cpu / int(total.group(1)) * 1e6}
    if errors:
        result["note"] = f"wrk: {errors.group(1).strip()}"
    return result


def hold(stand, count):
    """Opens `count` sessions to the holder, and waits until the holder has accepted all."""
    request = "hold" if stand.treatment.way == speak.ABSOLUTE else None
    answer = stand.ask("open", target_port=origin.HOLD_PORT, count=count, ask=request, seconds=30)
    if answer["refused"]:
        raise Trouble(f"{answer['refused']} of {count} idle sessions refused: {answer['why']}")
    stand.server.holder.ask("wait", count=count, seconds=10)


def release(stand):
    stand.client.ask("close")
    stand.server.holder.ask("drop", seconds=10)


def idle(stand):
    """Measures the growth of resident memory per session, with 1,500 idle sessions through a newly started relay."""
    fresh = stand.start(stand.treatment, stand.port + 1, origin.HOLD_PORT)
    try:
        with fresh.relay:
            hold(fresh, IDLE_WARM_UP)
            release(fresh)
            time.sleep(0.3)
            before = fresh.relay.tree.resident()
            hold(fresh, IDLE_SESSIONS)
            time.sleep(0.3)
            growth = fresh.relay.tree.resident() - before
    finally:
        release(stand)
    return {"idle": growth / 1024 / IDLE_SESSIONS}


@dataclass(frozen=True)
class Figure:
    name: str
    measure: Callable
    forwarders_only: bool = False


FIGURES = (Figure("one", one), Figure("many", many), Figure("small", small), Figure("kept", kept),
           Figure("rate", rate, True), Figure("idle", idle))
SOAK = "soak"
