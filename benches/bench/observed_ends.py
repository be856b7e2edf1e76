"""The endpoints of benches/observed.py, each a separate process:

    server N BYTES PAUSE    sends BYTES to each of N clients in turn, one round every PAUSE seconds
    clients PORT N          opens N sessions, prints "open", and reads all received bytes
    watcher PORT            reads the event stream of the admin listener, and its metrics every second, while "on"
"""

import http.client
import selectors
import socket
import sys
import threading
import time


def server(count, size, pause):
    piece = bytes(size)
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        print(listener.getsockname()[1], flush=True)
        clients = [listener.accept()[0] for _ in range(count)]
    for client in clients:
        client.setblocking(False)
    step, at = pause / count, time.monotonic()
    while True:
        for client in clients:
            at += step
            # A delay of more than one pause is not made up for, so that no window has a higher load because an earlier
            # one was late.
            at = max(at, time.monotonic() - pause)
            time.sleep(max(0.0, at - time.monotonic()))
            try:
                client.send(piece)
            except BlockingIOError:
                pass
            except OSError:
                return  # the relay has closed the connection


def clients(port, count):
    ready, buffer = selectors.EpollSelector(), bytearray(1 << 18)
    for _ in range(count):
        stream = socket.create_connection(("127.0.0.1", port))
        stream.setblocking(False)
        ready.register(stream, selectors.EVENT_READ)
    print("open", flush=True)
    while True:
        for key, _ in ready.select():
            if not key.fileobj.recv_into(buffer):
                sys.exit("a session has ended")


class Watcher:
    """Sends the requests of a browser with the dashboard and of a Prometheus server."""

    def __init__(self, port):
        self.port, self.snapshots, self.scrapes = port, 0, 0
        self.over = threading.Event()

    def stream(self):
        admin = http.client.HTTPConnection("127.0.0.1", self.port)
        admin.request("GET", "/api/stream")
        answer = admin.getresponse()
        while not self.over.is_set():
            if answer.readline().startswith(b"data: "):
                self.snapshots += 1
        admin.close()

    def scrape(self):
        while not self.over.wait(1):
            admin = http.client.HTTPConnection("127.0.0.1", self.port)
            admin.request("GET", "/metrics")
            self.scrapes += admin.getresponse().read().endswith(b"# EOF\n")
            admin.close()

    def run(self, seconds):
        threads = [threading.Thread(target=target) for target in (self.stream, self.scrape)]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.over.set()
        for thread in threads:
            thread.join()
        return self.snapshots, self.scrapes


def watcher(port):
    for line in sys.stdin:
        print(*Watcher(port).run(float(line)), flush=True)


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    if what == "server":
        server(int(numbers[0]), int(numbers[1]), float(numbers[2]))
    elif what == "clients":
        clients(*map(int, numbers))
    else:
        watcher(int(numbers[0]))
