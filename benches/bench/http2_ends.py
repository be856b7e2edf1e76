"""The measurements of benches/http2.py. Runs on the host `client` of the lab and prints the figures as JSON.

usage: http2_ends.py measure EKIDEN FOLDER SECONDS     on the client
       http2_ends.py server PORT                       on the server
"""

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# tests/tls is first, because `http2` is the client there, and not benches/http2.py.
sys.path[:0] = [os.path.join(HERE, "../../tests/tls"), os.path.dirname(HERE)]

from bench import admin  # noqa: E402

TUNNELS = 100
PROXY_PORT, SERVER_PORT = 8443, 9000
BLOCK = bytes(65536)
WINDOW = 1 << 20  # flow control window of a stream of the client, in bytes
SETTLED = 5.0  # seconds before rates are measured
LATER = 20.0  # seconds in which all windows become full


def serve(connection):
    """Serves one connection. Its first byte selects the work: `d` sends, `l` sends after LATER seconds, `u` reads, `w`
    does nothing."""
    try:
        wish = connection.recv(1)
        if wish == b"l":
            time.sleep(LATER)
        while wish in (b"d", b"l"):
            connection.sendall(BLOCK)
        while wish == b"u" and connection.recv(1 << 20):
            pass
        threading.Event().wait()
    except OSError:
        connection.close()


def server(port):
    listener = socket.create_server(("0.0.0.0", port), backlog=1024)
    while True:
        threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()


class Relay:
    """A relay with a TLS listener, on the host `relay`. The receive buffers of its sections to servers are limited, as
    are the send buffers of the servers."""

    def __init__(self, ekiden, folder):
        self.admin, self.certificate = f"{folder}/admin.sock", f"{folder}/certificate.pem"
        argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", f"{folder}/key.pem",
                "-out", self.certificate]
        subprocess.run(argv, check=True, capture_output=True)
        with open(f"{folder}/ekiden.toml", "w") as f:
            f.write(f'version = 1\nthreads = 1\ntarget_profile = "near"\n[profile.near]\nrcvbuf = "64KiB"\n[admin]\nbind = "unix:{self.admin}"\n[[listener]]\nname = "door"\n'
                    f'bind = "0.0.0.0:{PROXY_PORT}"\nkind = "http"\nallow_open = true\nallow_private = true\n'
                    f'tls_certificate = "{self.certificate}"\ntls_key = "{folder}/key.pem"\n')
        argv = ["on", "relay", ekiden, "run", "-c", f"{folder}/ekiden.toml"]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        while "listening" not in self.process.stdout.readline():
            pass

    def resident(self):
        """Returns the resident memory of the relay in bytes."""
        return admin.total(self.admin, "process_resident_memory_bytes")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def connect(relay):
    from http2 import Client
    return Client((os.environ["HTTP2_RELAY"], PROXY_PORT), relay.certificate, window=WINDOW)


def tunnels(one, count, wish):
    numbers = [one.connect(f"{os.environ['HTTP2_SERVER']}:{SERVER_PORT}") for _ in range(count)]
    one.until(lambda: all(one.streams[number].headers for number in numbers))
    for number in numbers:
        assert one.streams[number].status == 200, one.streams[number].headers
        one.send(number, wish)
    return numbers


class Counter:
    """The bytes that each tunnel has transferred since the start of the measurement."""

    def __init__(self, one, numbers, uploads):
        self.one, self.numbers, self.uploads = one, numbers, uploads
        self.moved = dict.fromkeys(numbers, 0)

    def run(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.uploads:
                for number in self.numbers:
                    self.moved[number] += self.one.fill(number)
            self.one.receive()
            for number in self.numbers:
                self.moved[number] += len(self.one.streams[number].data)
                self.one.streams[number].data.clear()

    def rates(self, seconds):
        """Returns the rate of each tunnel in Mbit/s."""
        self.run(SETTLED)
        before, began = dict(self.moved), time.monotonic()
        self.run(seconds)
        span = time.monotonic() - began
        return [(self.moved[number] - before[number]) * 8 / span / 1e6 for number in self.numbers]


def rates(relay, uploads, stalled, seconds):
    """Returns the rates of all tunnels except one. With `stalled` this one has data that are not read, otherwise it is
    idle."""
    one = connect(relay)
    [other] = tunnels(one, 1, b"d" if stalled and not uploads else b"w")
    one.streams[other].reading = False
    if stalled and uploads:
        one.fill(other)
    numbers = tunnels(one, TUNNELS - 1, b"u" if uploads else b"d")
    found = Counter(one, numbers, uploads).rates(seconds)
    one.socket.close()
    return found


def memory(relay):
    """Returns the memory of the relay per tunnel in bytes, for tunnels of which neither end reads."""
    one = connect(relay)
    before = relay.resident()
    numbers = tunnels(one, TUNNELS, b"l")
    until = time.monotonic() + LATER - 1
    while (left := until - time.monotonic()) > 0:
        for number in numbers:
            one.fill(number)
        if select.select([one.socket], [], [], left)[0]:
            one.receive()
    # From now on the client reads nothing, so that the connection to the client becomes full.
    most, until = 0, time.monotonic() + LATER
    while time.monotonic() < until:
        time.sleep(0.5)
        most = max(most, relay.resident())
    one.socket.close()
    return (most - before) / TUNNELS


def measure(ekiden, folder, seconds):
    found = {"downloads": {}, "uploads": {}}
    with Relay(ekiden, folder) as relay:
        for uploads in (False, True):
            for stalled in (False, True):
                of = found["uploads" if uploads else "downloads"]
                of["beside" if stalled else "alone"] = rates(relay, uploads, stalled, seconds)
    with Relay(ekiden, folder) as relay:
        found["memory"] = memory(relay)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        server(int(sys.argv[2]))
    else:
        measure(sys.argv[2], sys.argv[3], float(sys.argv[4]))
