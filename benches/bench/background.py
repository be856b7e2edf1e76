"""What the box only forwards, while it has other things to do: datagrams at fixed times, and one download.

The load goes to port 80, where relays catch it and `direct` forwards it: 1,000 sessions that together ask for
200 Mbit/s, and 1,000 silent ones beside which 300 new ones a second come and go. What is measured goes to ports that
nobody catches. Machine and cores are shared by both ends, the box and the load, so the load that is only forwarded has
its price too: the row `direct` shows it.
"""

import json
import time

from bench import origin
from bench.chain_figures import open_loop
from bench.programs import Program, Trouble, output_of
from bench.treatments import BUILT

SESSIONS, INTERVAL = 1000, 1.0  # seconds between two questions of a session
SHORT_RATE = 300  # new sessions a second
PROBE_PORT, PROBE_INTERVAL = 9, 2000  # microseconds
HEAD_START = 0.5  # seconds of the load alone


def answerer(network, folder):
    """The far end of the datagrams."""
    return Program(network, "server", [BUILT["probe"], "answer", str(PROBE_PORT)], f"{folder}/probe.log")


def probe(stand):
    seconds = stand.sizes.probe_seconds
    argv = [BUILT["probe"], "ask", stand.treatment.server, str(PROBE_PORT), str(PROBE_INTERVAL), str(seconds)]
    said = json.loads(output_of(stand.network, "client", argv, seconds + 10))
    if said["lost"] > said["sent"] // 100:
        raise Trouble(f"{said['lost']} of {said['sent']} datagrams never came back")
    return said


def bulk(stand):
    """Gbit/s of a download that nobody catches."""
    argv = ["curl", "--noproxy", "", "--silent", "--show-error", "--fail", "--output", "/dev/null", "--max-time",
            str(stand.sizes.curl_seconds), "--write-out", "%{speed_download}",
            f"http://{stand.treatment.server}:{origin.BACKGROUND_PORT}/{origin.LARGE}"]
    return float(output_of(stand.network, "client", argv, stand.sizes.curl_seconds + 10)) * 8 / 1e9


def paced(stand, work, seconds):
    """What `work` gives while all open sessions ask for bytes; longer than the load it must not take."""
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
    """What `work` gives while another program of the client runs, and what that printed."""
    log = f"{stand.folder}/load.log"
    with Program(stand.network, "client", argv, log) as load:
        time.sleep(HEAD_START)
        result = work(stand)
        load.process.wait(timeout=30)
    with open(log) as f:
        return result, json.loads(f.read().splitlines()[-1])


def short(stand):
    """The datagrams while sessions come and go."""
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
