"""The agent in the client namespace: sends requests through the relay and measures their times.

One process sends all requests, because starting a program takes far longer than a request. Commands are lines of JSON
on stdin, answers are lines of JSON on stdout:

    ready     wait until the relay accepts a connection
    small     many small requests one after another, each on a fresh connection
    kept      many small requests one after another on one connection
    open      open sessions and keep them       close     close them all
    download  every open session downloads at the same time, in steps with pauses
"""

import json
import os
import select
import socket
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bench import speak  # noqa: E402

KEPT = []


def ready(relay, seconds, **_):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection(tuple(relay), timeout=1).close()
            return {}
        except OSError:
            time.sleep(0.02)
    return {"trouble": f"nothing listens on {relay[0]}:{relay[1]}"}


def small(way, relay, target, path, size, count, seconds, **_):
    return repeated(lambda: timed_request(way, relay, target, path, size), count, seconds)


def kept(way, relay, target, path, size, count, seconds, **_):
    request = speak.request(way, target, path, keep=True)
    with speak.open_session(way, relay, target, timeout=5) as session:
        def exchange():
            start = time.perf_counter()
            session.sendall(request)
            speak.read_answer(session, size)
            return time.perf_counter() - start
        return repeated(exchange, count, seconds)


def repeated(timed, count, seconds):
    """Returns the median and p99 of `count` calls of `timed`, which returns a time in seconds."""
    deadline = time.monotonic() + seconds
    times = []
    for _ in range(count + count // 10):
        if time.monotonic() > deadline:
            return {"trouble": f"only {len(times)} of {count} requests in {seconds} s"}
        times.append(timed())
    measured = sorted(times[count // 10:])  # without the requests of the warm-up, which are the first ones
    return {"median": statistics.median(measured), "p99": measured[len(measured) * 99 // 100], "requests": len(times)}


def timed_request(way, relay, target, path, size):
    start = time.perf_counter()
    with speak.open_session(way, relay, target, timeout=5) as session:
        session.sendall(speak.request(way, target, path))
        speak.read_answer(session, size)
        return time.perf_counter() - start


def open_many(way, relay, target, count, seconds, buffer=0, ask=None, **_):
    """Opens `count` sessions, and requests the path `ask` on each, if set: with absolute-form there is no session
    before a request."""
    deadline = time.monotonic() + seconds
    refused, first = 0, ""
    for _ in range(count):
        if time.monotonic() > deadline:
            return {"trouble": f"only {len(KEPT)} of {count} sessions open after {seconds} s"}
        try:
            session = speak.open_session(way, relay, target, timeout=10, buffer=buffer)
            if ask:
                session.sendall(speak.request(way, target, ask))
            KEPT.append(session)
        except OSError as error:
            refused, first = refused + 1, first or str(error)
    return {"open": len(KEPT), "refused": refused, "why": first}


def close(**_):
    for session in KEPT:
        session.close()
    KEPT.clear()
    return {}


class Download:
    """A response on one session, read up to a limit that grows in steps."""

    def __init__(self, session):
        self.session, self.head, self.got, self.why = session, b"", -1, ""
        session.setblocking(False)

    def ask(self, request):
        try:
            self.session.sendall(request)
        except OSError as error:
            self.why = str(error)

    def read(self, goal):
        """Reads available bytes, up to `goal` bytes of body. Returns true when the goal is reached or the download
        has failed."""
        try:
            chunk = self.session.recv(65536 if self.got < 0 else min(65536, goal - self.got))
        except BlockingIOError:
            return False
        except OSError as error:
            self.why = str(error)
            return True
        if not chunk:
            self.why = f"ended after {self.got} bytes of body"
            return True
        return self._take(chunk) or self.got >= goal

    def _take(self, chunk):
        """Counts a piece of the response. Returns true if the response is not the expected one."""
        if self.got >= 0:
            self.got += len(chunk)
            return False
        self.head += chunk
        if b"\r\n\r\n" in self.head:
            head, _, body = self.head.partition(b"\r\n\r\n")
            self.got, self.head = len(body), b""
            if head.split()[1:2] != [b"200"]:
                self.why = head.splitlines()[0].decode(errors="replace")
        return bool(self.why)


def download(way, target, path, size, steps, pause, seconds, **_):
    deadline = time.monotonic() + seconds
    downloads = {s.fileno(): Download(s) for s in KEPT}
    for each in downloads.values():
        each.ask(speak.request(way, target, path))
    for step in range(1, steps + 1):
        advance([d for d in downloads.values() if not d.why], size * step // steps, deadline)
        time.sleep(pause)
    failed = [d for d in downloads.values() if d.why or d.got < size]
    why = next((d.why or f"only {d.got} of {size} bytes" for d in failed), "")
    return {"complete": len(downloads) - len(failed), "failed": len(failed), "why": why}


def advance(downloads, goal, deadline):
    """Continues all downloads up to `goal` bytes."""
    waiting = {d.session.fileno(): d for d in downloads if d.got < goal}
    with select.epoll() as epoll:
        for fd in waiting:
            epoll.register(fd, select.EPOLLIN)
        while waiting and time.monotonic() < deadline:
            for fd, _ in epoll.poll(0.5):
                if waiting[fd].read(goal):
                    epoll.unregister(fd)
                    del waiting[fd]


ACTIONS = {"ready": ready, "small": small, "kept": kept, "open": open_many, "close": close, "download": download}


def serve(actions):
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = actions[request.pop("do")](**request)
        except (OSError, ValueError) as error:
            answer = {"trouble": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(ACTIONS)
