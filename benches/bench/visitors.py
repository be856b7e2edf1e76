"""The agent in the client namespace for many sessions that stay open and repeat requests. Extends `client.py`.

    who    each session requests its own address and port and checks the answer: no bytes of other sessions, none lost
    pace   each session sends a request every `interval` seconds, evenly spread, without waiting for earlier answers
"""

import os
import select
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bench import client  # noqa: E402

PATIENCE = 5  # seconds, for the last answers


class Visitor:
    """One session with its requests. All answers have the length of the first answer."""

    def __init__(self, session):
        self.session, self.asked, self.answered = session, 0, 0
        self.got, self.length, self.body, self.why = b"", 0, b"", ""
        session.setblocking(False)

    @property
    def is_done(self):
        return bool(self.why) or self.answered == self.asked

    def ask(self, request):
        self.asked += 1
        try:
            self.session.sendall(request)
        except OSError as error:
            self.why = self.why or str(error)

    def hear(self):
        try:
            chunk = self.session.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            self.why = str(error)
            return
        if not chunk:
            self.why = f"ended after {self.answered} of {self.asked} answers"
        self.got += chunk
        self.length = self.length or whole(self.got)
        while self.length and len(self.got) >= self.length:
            self.body, self.got = self.got[:self.length].partition(b"\r\n\r\n")[2], self.got[self.length:]
            self.answered += 1


def whole(answer):
    """Returns the length of an answer in bytes, including its head, or 0 while the length is unknown."""
    head, found, _ = answer.partition(b"\r\n\r\n")
    lengths = [int(line.split()[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return len(head) + len(found) + lengths[0] if found and lengths else 0


def question(target, path):
    return f"GET /{path} HTTP/1.1\r\nHost: {target[0]}\r\n\r\n".encode()


class Round:
    """All open sessions, and the epoll instance that waits for their answers."""

    def __init__(self):
        self.visitors = {s.fileno(): Visitor(s) for s in client.KEPT}
        self.epoll = select.epoll()
        for fd in self.visitors:
            self.epoll.register(fd, select.EPOLLIN)

    def hear(self, seconds):
        for fd, _ in self.epoll.poll(max(0, seconds)):
            self.visitors[fd].hear()
            if self.visitors[fd].why:
                self.epoll.unregister(fd)

    def hear_all(self, seconds):
        deadline = time.monotonic() + seconds
        while not all(v.is_done for v in self.visitors.values()) and time.monotonic() < deadline:
            self.hear(0.1)

    def result(self, is_right=lambda visitor: True):
        self.epoll.close()
        every = list(self.visitors.values())
        failed = [v for v in every if v.why or v.answered < v.asked or not is_right(v)]
        why = next((v.why or f"{v.answered} of {v.asked} answers, the last {v.body[:40]}" for v in failed), "")
        return {"right": len(every) - len(failed), "failed": len(failed), "why": why,
                "answers": sum(v.answered for v in every)}


def who(target, path, seconds, **_):
    visits = Round()
    for visitor in visits.visitors.values():
        visitor.ask(question(target, path))
    visits.hear_all(seconds)
    return visits.result(lambda v: v.body.decode() == "{}:{}".format(*v.session.getsockname()))


def pace(target, path, interval, duration, **_):
    visits = Round()
    every, asked, start = list(visits.visitors.values()), 0, time.monotonic()
    while every and time.monotonic() < start + duration:
        due = start + asked * interval / len(every)
        if due > time.monotonic():
            visits.hear(due - time.monotonic())
            continue
        every[asked % len(every)].ask(question(target, path))
        asked += 1
    visits.hear_all(PATIENCE)
    return visits.result()


if __name__ == "__main__":
    client.serve({**client.ACTIONS, "who": who, "pace": pace})
