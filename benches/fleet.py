#!/usr/bin/env python3
"""Measures the effect of etcd failures on sessions: 500 per second through a relay that finds the next relay in its
fleet, while etcd is stopped, killed, restored from an old copy or slow, and while the next relay drains and returns.

    python3 benches/fleet.py [--rate N] [--seconds N] [--out FILE.md]

Needs etcd and etcdctl (Debian: etcd-server, etcd-client). EKIDEN in the environment names another binary.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

from bench import command, speak
from bench.command import free_port
from bench.etcd import Etcd, SlowWay, pour, run
from bench.table import markdown_table
from bench.treatments import ekiden_binary

EKIDEN = ekiden_binary()
DEADLINE = 10
WORD = b"as many bytes as a small answer has" * 8


class Site:
    def __init__(self, folder, name, fleet, etcd, more=""):
        self.folder, self.address = f"{folder}/{name}", f"127.0.0.1:{free_port()}"
        os.mkdir(self.folder)
        key, certificate, config = (f"{self.folder}/{part}" for part in ("key", "certificate", "ekiden.toml"))
        self.clients = free_port()
        with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write(run(EKIDEN, "keygen"))
        request = run(EKIDEN, "fleet", "request", "--key", key).strip()
        with open(certificate, "w") as f:
            f.write(run(EKIDEN, "fleet", "sign", "--key", fleet, "--name", name, "--address", self.address, request))
        with open(fleet) as f:
            public = f.read().split("fleet-public-key: ")[1].strip()
        with open(config, "w") as f:
            f.write(f'version = 1\nprivate_key = "{key}"\n'
                    f'[[listener]]\nkind = "section"\nbind = "{self.address}"\nfleet = true\n'
                    f'[[listener]]\nkind = "socks"\nbind = "127.0.0.1:{self.clients}"\n'
                    f'[fleet]\netcd = "{etcd}"\nkey = "{public}"\ncertificate = "{certificate}"\n'
                    f'state = "{self.folder}/state"\nlease = "5s"\nevery = "1s"\n{more}')
        self.config, self.process = config, None

    def start(self):
        with open(f"{self.folder}/log", "a") as log:
            argv = [EKIDEN, "run", "-c", self.config, "--log", "json", "--admin", f"unix:{self.folder}/admin"]
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)

    def said(self, word, since=0):
        with open(f"{self.folder}/log") as f:
            f.seek(since)
            return word in f.read()

    def so_far(self):
        return os.path.getsize(f"{self.folder}/log")

    async def hears(self, word, since=0):
        for _ in range(400):
            if self.said(word, since):
                return
            await asyncio.sleep(0.05)
        sys.exit(f"bench: {self.folder}/log never said {word}")


class Counts:
    def __init__(self):
        self.done = self.lost = self.refused = 0
        self.times = []

    def row(self, name, more=""):
        """Prints and returns the row of a phase: counts, and median and p99 of the session time in milliseconds."""
        self.times.sort()
        median, late = (1000 * self.times[int(share * (len(self.times) - 1))] if self.times else float("nan") for share in (0.5, 0.99))
        print(f"{name:38} sessions {self.done:6} lost {self.lost} refused {self.refused} "
              f"median {median:.1f} ms p99 {late:.1f} ms{more}", flush=True)
        return name, (self.done, self.lost, self.refused), (median, late)


async def session(port, target, counts):
    """Runs one session: SOCKS5, a few bytes in each direction, end of stream. Counts it as refused if it is not
    established, and as lost if it is established but not completed."""
    began, stood = time.monotonic(), False
    try:
        async with asyncio.timeout(DEADLINE):
            reader, writer = await speak.open_socks(port, target)
            stood = True
            writer.write(WORD)
            assert await reader.readexactly(len(WORD)) == WORD
            writer.write_eof()
            assert await reader.read(1) == b""
            counts.done += 1
            counts.times.append(time.monotonic() - began)
            writer.close()
    except (OSError, EOFError, AssertionError, TimeoutError):
        if stood:
            counts.lost += 1
        else:
            counts.refused += 1


async def load(port, target, rate, seconds, counts):
    """Starts `rate` sessions per second for `seconds`, without waiting for earlier sessions."""
    began, tasks = time.monotonic(), []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0, began + number / rate - time.monotonic()))
        tasks.append(asyncio.create_task(session(port, target, counts)))
    await asyncio.gather(*tasks)


async def measure(options, folder):
    fleet = f"{folder}/fleet"
    with open(os.open(fleet, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write(run(EKIDEN, "fleet", "keygen"))
    etcd = Etcd(folder)
    etcd.start()
    etcd.ready()
    way = SlowWay(etcd.client)
    url = await way.start()
    server = await asyncio.start_server(pour, "127.0.0.1", 0, backlog=4096)
    target = server.sockets[0].getsockname()[1]
    more = '[[path]]\nname = "by-osaka"\nrelays = ["osaka"]\n[[route]]\npath = ["by-osaka", "direct"]\n[timeouts]\ndrain = "10s"\n'
    home, osaka = Site(folder, "home", fleet, url, more), Site(folder, "osaka", fleet, url)
    home.start()
    await home.hears('"listening"')
    etcd.snapshot()
    osaka.start()
    await home.hears('"joined":["osaka"]')
    await osaka.hears('"joined":["home"]')

    async def nothing():
        pass

    async def stopped():
        etcd.process.send_signal(signal.SIGSTOP)

    async def goes_on():
        etcd.process.send_signal(signal.SIGCONT)

    async def killed():
        etcd.stop(signal.SIGKILL)

    async def started():
        etcd.start()

    async def restored():
        await asyncio.to_thread(etcd.restore)

    async def slow():
        way.delay = 0.5

    async def fast():
        way.delay = 0.0

    async def drains():
        osaka.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(osaka.process.wait)

    async def comes_back():
        osaka.start()

    async def emptied():
        run("etcdctl", "--endpoints", etcd.client, "del", "", "--prefix")

    phases = [("etcd up", nothing), ("etcd stopped (SIGSTOP)", stopped), ("etcd goes on", goes_on),
              ("etcd killed", killed), ("etcd started again", started), ("etcd restored from an old copy", restored),
              ("etcd emptied", emptied), ("etcd slow (1 s of round trip)", slow), ("etcd fast again", fast),
              ("the next relay drains", drains), ("it comes back", comes_back)]
    rows = []
    try:
        for name, act in phases:
            counts = Counts()
            acting = asyncio.create_task(act())
            await load(home.clients, target, options.rate, options.seconds, counts)
            await acting
            rows.append(counts.row(name))
    finally:
        for process in (home.process, osaka.process, etcd.process):
            process.kill()
            process.wait()
        server.close()
    return rows


def page(options, rows):
    lines = ["# A fleet and its etcd, measured", "",
             f"Written by `make bench-fleet` (benches/fleet.py): {options.rate} sessions a second through two relays of a fleet, "
             f"{options.seconds} s for each phase. Lost: it stood, and did not come to its end. Refused: it never stood.", ""]
    cells = [[name, *map(str, counted), *(f"{each:.1f}" for each in times)] for name, counted, times in rows]
    head = ["phase", "sessions", "lost", "refused", "median, ms", "99th percentile, ms"]
    return "\n".join(lines + markdown_table(head, cells)) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rate", type=int, default=500, help="sessions a second")
    parser.add_argument("--seconds", type=int, default=20, help="length of a phase")
    parser.add_argument("--out", default=os.path.join(command.HERE, "fleet.md"), help="where the page is written")
    options = parser.parse_args()
    command.stop_on_signals()
    with ExitStack() as stack:
        rows = asyncio.run(measure(options, command.temporary(stack)))
    command.write(options.out, page(options, rows))
    if any(lost or refused for _, (_, lost, refused), _ in rows):
        sys.exit("bench: sessions were lost or refused")


if __name__ == "__main__":
    main()
