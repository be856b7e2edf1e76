"""Measures traffic that the box only forwards while it is under load: datagrams at fixed times, and one download.

The load goes to port 80, which relays intercept and `direct` forwards: 1,000 sessions that together request 200 Mbit/s,
or 1,000 silent sessions and 300 new sessions per second. The measured traffic goes to ports that no relay intercepts.
Both ends, the box and the load share the CPUs of the machine, so forwarded load has a cost as well, which the row
`direct` shows.
"""

import json
import time

from bench import origin
from bench.chain_figures import open_loop
from bench.programs import Program, Trouble, output_of
from bench.treatments import BUILT

SESSIONS, INTERVAL = 1000, 1.0  # the interval between two requests of a session in seconds
SHORT_RATE = 300  # new sessions per second
PROBE_PORT, PROBE_INTERVAL = 9, 2000  # microseconds
HEAD_START = 0.5  # seconds of load before the measurement


def answerer(network, folder):
    """Starts the program that returns the datagrams."""
    return Program(network, "server", [BUILT["probe"], "answer", str(PROBE_PORT)], f"{folder}/probe.log")


def probe(stand):
    seconds = stand.sizes.probe_seconds
    argv = [BUILT["probe"], "ask", stand.treatment.server, str(PROBE_PORT), str(PROBE_INTERVAL), str(seconds)]
    said = json.loads(output_of(stand.network, "client", argv, seconds + 10))
    if said["lost"] > said["sent"] // 100:
        raise Trouble(f"{said['lost']} of {said['sent']} datagrams never came back")
    return said


def bulk(stand):
    """Returns the rate in Gbit/s of a download that no relay intercepts."""
    argv = ["curl", "--noproxy", "", "--silent", "--show-error", "--fail", "--output", "/dev/null", "--max-time",
            str(stand.sizes.curl_seconds), "--write-out", "%{speed_download}",
            f"http://{stand.treatment.server}:{origin.BACKGROUND_PORT}/{origin.LARGE}"]
    return float(output_of(stand.network, "client", argv, stand.sizes.curl_seconds + 10)) * 8 / 1e9


def paced(stand, work, seconds):
    """Returns the result of `work` while all open sessions request data for `seconds`. Raises Trouble if `work` takes
    longer."""
    stand.client.tell("pace", seconds + 10, target=[stand.treatment.server, origin.PORT], path=origin.PACED,
                      interval=INTERVAL, duration=seconds)
    start = time.monotonic()
    time.sleep(HEAD_START)
    try:
        result = work(stand)
        took = time.monotonic() - start
    finally:
        said = stand.client.answer("pace", seconds + 10)
    if said["failed"] or took > seconds:
        raise Trouble(f"{said['failed']} of {SESSIONS} paced sessions failed ({said['why']}); "
                      f"{took:.1f} of {seconds} s were used")
    return result


def beside(stand, argv, work):
    """Returns the result of `work` while `argv` runs in the client namespace, and the JSON output of `argv`."""
    log = f"{stand.folder}/load.log"
    with Program(stand.network, "client", argv, log) as load:
        time.sleep(HEAD_START)
        result = work(stand)
        load.process.wait(timeout=30)
    with open(log) as f:
        return result, json.loads(f.read().splitlines()[-1])


def short(stand):
    """Measures the datagrams while sessions open and close at SHORT_RATE."""
    argv = open_loop(stand, SHORT_RATE, stand.sizes.probe_seconds + 2 * HEAD_START)
    said, load = beside(stand, argv, probe)
    if load["failed"]:
        raise Trouble(f"{load['failed']} of {load['sessions']} short sessions failed, the first by: {load['why']}")
    return said


def background(stand):
    idle, alone = probe(stand), bulk(stand)
    opened = stand.ask("open", count=SESSIONS, seconds=30)
    try:
        if opened["refused"]:
            raise Trouble(f"{opened['refused']} of {SESSIONS} sessions refused: {opened['why']}")
        seconds = stand.sizes.probe_seconds
        busy = paced(stand, probe, seconds + 2)
        coming = short(stand)
        crowded = paced(stand, bulk, stand.sizes.bulk_seconds)
    finally:
        stand.client.ask("close")
    late = max(idle["late"], busy["late"], coming["late"])
    return {"probe_idle": idle["p50"], "probe_idle_slow": idle["p99"], "probe_paced": busy["p50"],
            "probe_paced_slow": busy["p99"], "probe_short_slow": coming["p99"], "probe_late": late,
            "bulk": alone, "bulk_crowded": crowded}
