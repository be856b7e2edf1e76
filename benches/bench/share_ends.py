"""The two endpoints of benches/share.py, each on its own host of the lab:

    server PORT     answers each line with an endless stream of bytes; connections without requests stay open
    client          downloads according to the plan on stdin, and prints the arrival times of the bytes
    crowd PORT N    opens N sessions, prints "open", and keeps them until stdin ends
"""

import json
import selectors
import socket
import sys
import threading
import time

PIECE = b"\7" * 65536
STEP = 0.05  # seconds: resolution of the arrival times


def server(port):
    with socket.create_server(("0.0.0.0", port), backlog=4096, reuse_port=True) as listener:
        waiting = selectors.DefaultSelector()
        waiting.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is listener:
                    waiting.register(listener.accept()[0], selectors.EVENT_READ)
                else:
                    waiting.unregister(key.fileobj)
                    threading.Thread(target=answer, args=(key.fileobj,), daemon=True).start()


def answer(stream):
    try:
        while stream.recv(4096):
            while True:
                stream.sendall(PIECE)
    except OSError:
        pass
    finally:
        stream.close()


class Download:
    """One download of the plan: its source, its start and end in seconds, and the total bytes received at each step."""

    def __init__(self, where, begin, end):
        self.where, self.begin, self.end = tuple(where), begin, end
        self.stream, self.bytes, self.steps = None, 0, []

    def follow(self, now, ready):
        if self.stream is None and self.begin <= now < self.end:
            self.stream = socket.create_connection(self.where)
            self.stream.sendall(b"\n")
            self.stream.setblocking(False)
            ready.register(self.stream, selectors.EVENT_READ, self)
        elif self.stream is not None and now >= self.end:
            ready.unregister(self.stream)
            self.stream.close()
            self.stream, self.end = None, -1

    def read(self, room):
        try:
            while count := self.stream.recv_into(room):
                self.bytes += count
        except BlockingIOError:
            pass


def client():
    plan = json.load(sys.stdin)
    downloads = [Download(*one) for one in plan["downloads"]]
    ready, room, begun = selectors.DefaultSelector(), bytearray(1 << 20), time.monotonic()
    for step in range(1, int(plan["seconds"] / STEP) + 1):
        while (now := time.monotonic() - begun) < step * STEP:
            for one in downloads:
                one.follow(now, ready)
            for key, _ in ready.select(step * STEP - now) if ready.get_map() else ():
                key.data.read(room)
            if not ready.get_map():
                time.sleep(0.005)
        for one in downloads:
            one.steps.append(one.bytes)
    json.dump([one.steps for one in downloads], sys.stdout)


def crowd(port, count):
    # A separate server on this host would need as many descriptors again. Targets are spread over loopback addresses.
    kept = []
    for number in range(count):
        kept.append(socket.create_connection((f"127.0.0.{1 + number % 200}", port)))
    print("open", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    {"server": server, "client": client, "crowd": crowd}[sys.argv[1]](*map(int, sys.argv[2:]))
