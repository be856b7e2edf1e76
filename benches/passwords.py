#!/usr/bin/env python3
"""Measures how long a client with the right password waits while many clients send wrong ones.

    python3 benches/passwords.py [--quick] [--rate N] [--seconds N] [--out FILE.md]

Wrong passwords arrive at a fixed rate that does not depend on the answers; those of one second come from different
loopback addresses. Each second a user with the right password connects from yet another address. Needs htpasswd
(Debian: apache2-utils). EKIDEN in the environment names another binary.
"""

import argparse
import asyncio
import base64
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack

from bench import command
from bench.table import markdown_table
from bench.treatments import ekiden_binary, version_of

LIMIT = 1.0  # seconds: limit of the bar
COST = 10  # cost of bcrypt, as in `htpasswd -B -C 10`


def users_file(folder, count):
    """Writes an htpasswd file with `count` users, whose passwords are their names."""
    path = os.path.join(folder, "users")
    for number in range(count):
        create = ["-c"] if number == 0 else []
        subprocess.run(["htpasswd", "-bB", "-C", str(COST), *create, path, f"user{number}", f"user{number}"],
                       check=True, stderr=subprocess.DEVNULL)
    os.chmod(path, 0o600)
    return path


def start(stack, folder, users):
    """Starts a relay. Returns its process and the port of its HTTP listener."""
    config = os.path.join(folder, "ekiden.toml")
    with open(config, "w") as f:
        f.write(f'version = 1\n[[listener]]\nname = "door"\nbind = "127.0.0.1:0"\nusers = "{users}"\nallow_private = true\n'
                f'[admin]\nbind = "unix:{folder}/admin.sock"\n')
    relay = subprocess.Popen([ekiden_binary(), "run", "-c", config], text=True, stdout=subprocess.PIPE)
    stack.callback(relay.wait)
    stack.callback(relay.kill)
    for line in relay.stdout:
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if " listening " in line and words.get("listener") == "door":
            return relay, int(words["address"].rpartition(":")[2])
    sys.exit("bench: ekiden ended")


async def ask(port, target, source, user, password):
    """Requests a tunnel from the address `source`. Returns the HTTP status, or 0 if the connection ends without one."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        writer.write(f"CONNECT 127.0.0.1:{target} HTTP/1.1\r\nHost: 127.0.0.1:{target}\r\n"
                     f"Proxy-Authorization: Basic {secret}\r\n\r\n".encode())
        head = await reader.readline()
        writer.close()
        return int(head.split()[1]) if head else 0
    except OSError:
        return 0


async def flood(port, target, rate, until, users, statuses):
    """Sends `rate` wrong passwords per second until `until`, from changing addresses, half of them for existing users.
    Counts the results in `statuses`. Returns the number of attempts."""
    pending, began, sent = set(), time.monotonic(), 0

    async def attempt(number):
        user = f"user{number % users}" if number % 2 else f"unknown{number}"
        statuses[await ask(port, target, f"127.0.1.{1 + number % rate}", user, f"wrong{number}")] += 1

    while time.monotonic() < until:
        task = asyncio.create_task(attempt(sent))
        pending.add(task)
        task.add_done_callback(pending.discard)
        sent += 1
        await asyncio.sleep(max(0, began + sent / rate - time.monotonic()))
    for task in pending:
        task.cancel()
    return sent


async def measure(port, rate, seconds):
    """Returns the delay of each right password in seconds (None if refused), the number of wrong passwords, and the
    results of these."""
    async def serve(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    target = server.sockets[0].getsockname()[1]
    statuses, took = Counter(), []
    flooding = asyncio.create_task(flood(port, target, rate, time.monotonic() + seconds + 3, seconds, statuses))
    await asyncio.sleep(2)
    for number in range(seconds):
        began = time.monotonic()
        status = await ask(port, target, f"127.0.2.{1 + number}", f"user{number}", f"user{number}")
        took.append(time.monotonic() - began if status == 200 else None)
        await asyncio.sleep(max(0, began + 1 - time.monotonic()))
    sent = await flooding
    server.close()
    return took, sent, statuses


def page(took, sent, statuses, rate, seconds):
    right = [t for t in took if t is not None]
    is_met = len(right) == len(took) and max(right) <= LIMIT
    row = [f"{len(right)} of {len(took)}", f"{statistics.median(right):.3f}" if right else "–",
           f"{max(right):.3f}" if right else "–", str(sent), ", ".join(f"{n} x {s or 'none'}" for s, n in sorted(statuses.items()))]
    heads = ["right passwords let in", "median, s", "slowest, s", "wrong ones sent", "their statuses"]
    return "\n".join([
        "# Wrong passwords, measured", "",
        f"Written by benches/passwords.py with {version_of('ekiden')}, {os.cpu_count()} cores, bcrypt cost {COST}. {rate} wrong "
        f"passwords a second from {rate} addresses; each second a user that had not come in before, for {seconds} s.", "",
        *markdown_table(heads, [row]), "",
        f"Wanted: every right password within {LIMIT:.0f} s. The bar is {'met' if is_met else '**missed**'}.", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="ten seconds")
    parser.add_argument("--rate", type=int, default=60, help="wrong passwords a second, at most 250")
    parser.add_argument("--seconds", type=int, default=60, help="how many right passwords are tried, at most 250")
    parser.add_argument("--out", default=os.path.join(command.HERE, "passwords.md"), help="where the page is written")
    options = parser.parse_args()
    seconds = 10 if options.quick else options.seconds
    if not (1 <= options.rate <= 250 and 1 <= seconds <= 250):
        parser.error("--rate and --seconds must be from 1 to 250")
    command.raise_file_limit()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ekiden-passwords-"))
        relay, port = start(stack, folder, users_file(folder, seconds))
        stack.enter_context(relay.stdout)
        # The relay logs a line per attempt. A full pipe drops lines and does not block the relay, so the pipe is not
        # read.
        found = asyncio.run(measure(port, options.rate, seconds))
    command.write(options.out, page(*found, options.rate, seconds))


if __name__ == "__main__":
    main()
