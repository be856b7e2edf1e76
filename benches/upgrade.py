#!/usr/bin/env python3
"""Measures the effect of upgrades and reloads on sessions: 500 downloads run all the time and 500 sessions per second
start, while the relay is reloaded, upgraded, and requested to perform upgrades that must fail.

    python3 benches/upgrade.py [--rate N] [--downloads N] [--seconds N] [--times N] [--out FILE.md]

EKIDEN in the environment names another binary. The exit status is 1 if anything was lost, refused or unexpected.
"""

import argparse
import asyncio
import os
import random
import re
import signal
import subprocess
import sys
from contextlib import ExitStack

from bench import command, speak
from bench.command import free_port
from bench.etcd import pour
from bench.table import markdown_table
from bench.treatments import ekiden_binary
from fleet import Counts, load

PIECE, PAUSE = 8192, 0.5  # of each download: bytes per slice, seconds between slices
BYTES = random.Random(1).randbytes(1 << 20) * 2  # of downloads; doubled, so that every slice is contiguous
DEADLINE = 60


class Relay:
    """A relay whose program is a symbolic link, so that an upgrade can start another file under the same path."""

    def __init__(self, folder):
        self.folder, self.program = folder, f"{folder}/ekiden"
        self.port, self.admin = free_port(), f"unix:{folder}/admin"
        self.link()
        self.configure("")
        with open(f"{folder}/log", "a") as log:
            argv = [self.program, "run", "-c", f"{folder}/ekiden.toml", "--log", "json", "--admin", self.admin]
            self.first = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        self.serves = self.first.pid

    def link(self):
        if os.path.lexists(self.program):
            os.remove(self.program)
        os.symlink(os.path.abspath(ekiden_binary()), self.program)

    def break_program(self):
        os.remove(self.program)
        with open(os.open(self.program, os.O_CREAT | os.O_WRONLY, 0o755), "w") as f:
            f.write("#!/bin/sh\nexit 3\n")

    def configure(self, more):
        with open(f"{self.folder}/ekiden.toml", "w") as f:
            f.write(f'version = 1\n[[listener]]\nkind = "socks"\nbind = "127.0.0.1:{self.port}"\n'
                    f'[timeouts]\nupgrade_drain = "1h"\n{more}')

    def so_far(self):
        return os.path.getsize(f"{self.folder}/log")

    async def hears(self, word, since=0):
        for _ in range(20 * DEADLINE):
            with open(f"{self.folder}/log") as f:
                f.seek(since)
                if word in f.read():
                    return
            await asyncio.sleep(0.05)
        sys.exit(f"bench: {self.folder}/log never said {word}")

    async def reload(self):
        since = self.so_far()
        os.kill(self.serves, signal.SIGHUP)
        await self.hears('"reloaded"', since)

    async def ask(self):
        """Runs `ekiden upgrade`. Returns its exit code and output."""
        asked = await asyncio.create_subprocess_exec(ekiden_binary(), "upgrade", "--admin", self.admin,
                                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, _ = await asyncio.wait_for(asked.communicate(), DEADLINE)
        return asked.returncode, said.decode()

    async def upgrade(self):
        code, said = await self.ask()
        if code != 0:
            sys.exit(f"bench: ekiden upgrade failed: {said}")
        self.serves = int(re.match(r"process (\d+) serves", said)[1])

    async def fails(self, word):
        code, said = await self.ask()
        if code != 1 or word not in said:
            sys.exit(f"bench: ekiden upgrade should have failed with {word!r}; it ended with {code}: {said}")

    def end(self):
        try:
            os.killpg(self.first.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.first.wait()


class Downloads:
    """The long-running downloads: each slowly receives a repeated pattern until `over` is set."""

    def __init__(self):
        self.over = asyncio.Event()
        self.sent = self.received = self.finished = 0
        self.troubles = []

    async def serve(self, _, writer):
        at = 0
        try:
            while not self.over.is_set():
                writer.write(BYTES[at:at + PIECE])
                await writer.drain()
                at, self.sent = (at + PIECE) % (len(BYTES) // 2), self.sent + PIECE
                await asyncio.sleep(PAUSE)
        except OSError:
            pass  # the client's side reports the error
        writer.close()

    async def fetch(self, port, target):
        at = 0
        try:
            reader, writer = await speak.open_socks(port, target)
            while data := await reader.read(65536):
                if data != BYTES[at:at + len(data)]:
                    return self.troubles.append("altered")
                at, self.received = (at + len(data)) % (len(BYTES) // 2), self.received + len(data)
            self.finished += 1
            writer.close()
        except (OSError, EOFError) as error:
            self.troubles.append(str(error))


async def act(relay, what, times, seconds):
    """Calls `what` `times` times, spread over `seconds`."""
    for _ in range(times):
        await what()
        await asyncio.sleep(seconds / (times + 1))


def phases(relay):
    async def nothing():
        pass

    async def both():
        await relay.upgrade()
        await relay.reload()

    async def broken_program():
        relay.break_program()
        await relay.fails("exit status: 3")
        relay.link()

    async def broken_configuration():
        relay.configure("[limits]\nsesions = 1\n")
        await relay.fails("sesions")
        relay.configure("")

    return [("nothing happens", nothing), ("reloads", relay.reload), ("upgrades", relay.upgrade),
            ("upgrades, each with a reload", both), ("upgrades to a broken program", broken_program),
            ("upgrades with a broken configuration", broken_configuration), ("upgrades again", relay.upgrade)]


async def measure(options, folder):
    relay, downloads = Relay(folder), Downloads()
    servers = [await asyncio.start_server(pour, "127.0.0.1", 0, backlog=4096),
               await asyncio.start_server(downloads.serve, "127.0.0.1", 0, backlog=4096)]
    echo, source = (server.sockets[0].getsockname()[1] for server in servers)
    rows = []
    try:
        await relay.hears('"listening"')
        running = [asyncio.create_task(downloads.fetch(relay.port, source)) for _ in range(options.downloads)]
        for name, what in phases(relay):
            counts = Counts()
            acting = asyncio.create_task(act(relay, what, options.times, options.seconds))
            await load(relay.port, echo, options.rate, options.seconds, counts)
            await acting
            rows.append(counts.row(name, f", downloads lost {len(downloads.troubles)}"))
        downloads.over.set()
        await asyncio.wait_for(asyncio.gather(*running), DEADLINE)
    finally:
        relay.end()
        for server in servers:
            server.close()
    return rows, downloads


def page(options, rows, downloads):
    lines = ["# Upgrades and reloads, measured", "",
             f"Written by `make bench-upgrade` (benches/upgrade.py): {options.rate} sessions a second, {options.seconds} s for each "
             f"phase, in which what it is about happens {options.times} times. Lost: it stood, and did not come to its end. "
             "Refused: it never stood.", ""]
    cells = [[name, *map(str, counted), *(f"{each:.1f}" for each in times)] for name, counted, times in rows]
    lines += markdown_table(["phase", "sessions", "lost", "refused", "median, ms", "99th percentile, ms"], cells)
    lines += ["", f"{options.downloads} downloads ran through all of it: {downloads.finished} came to their end byte for byte, "
              f"{len(downloads.troubles)} did not; {downloads.received / 1e6:.0f} MB of {downloads.sent / 1e6:.0f} MB arrived."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rate", type=int, default=500, help="sessions a second")
    parser.add_argument("--downloads", type=int, default=500, help="how many run all the time")
    parser.add_argument("--seconds", type=int, default=15, help="length of a phase")
    parser.add_argument("--times", type=int, default=3, help="how often in a phase")
    parser.add_argument("--out", default=os.path.join(command.HERE, "upgrade.md"), help="where the page is written")
    options = parser.parse_args()
    command.stop_on_signals()
    command.raise_file_limit()
    with ExitStack() as stack:
        rows, downloads = asyncio.run(measure(options, command.temporary(stack)))
    command.write(options.out, page(options, rows, downloads))
    if any(lost or refused for _, (_, lost, refused), _ in rows):
        sys.exit("bench: sessions were lost or refused")
    if downloads.troubles or downloads.finished != options.downloads or downloads.received != downloads.sent:
        sys.exit(f"bench: downloads were lost or altered: {sorted(set(downloads.troubles))}")


if __name__ == "__main__":
    main()
