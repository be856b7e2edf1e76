"""The agent in the server namespace: accepts connections and holds them open without sending anything.

    holder.py PORT        then lines of JSON on stdin; `{"do": "wait", "count": N, "seconds": S}` answers
                          as soon as N connections are open, or after S seconds with `trouble`;
                          `{"do": "drop", "seconds": S}` closes all.
"""

import json
import os
import select
import socket
import sys
import time


class Holder:
    def __init__(self, port):
        self.listener = socket.create_server(("0.0.0.0", port), backlog=8192)
        self.listener.setblocking(False)
        self.held = {}
        self.epoll = select.epoll()
        self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        self.epoll.register(0, select.EPOLLIN)
        self.pending = b""

    def turn(self, seconds):
        """Handles the events of one call of poll. Returns false at the end of stdin."""
        for fd, _ in self.epoll.poll(seconds):
            if fd == self.listener.fileno():
                self.accept()
            elif fd != 0:
                self.read(fd)
            else:
                got = os.read(0, 65536)
                if not got:
                    return False
                self.pending += got
        return True

    def accept(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except BlockingIOError:
                return
            connection.setblocking(False)
            self.held[connection.fileno()] = connection
            self.epoll.register(connection.fileno(), select.EPOLLIN)

    def read(self, fd):
        """Discards received bytes, and closes the connection at end of stream."""
        try:
            if self.held[fd].recv(65536):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.epoll.unregister(fd)
        self.held.pop(fd).close()

    def wait(self, count, seconds):
        deadline = time.monotonic() + seconds
        while len(self.held) != count and time.monotonic() < deadline:
            if not self.turn(0.05):
                sys.exit(0)
        if len(self.held) != count:
            return {"trouble": f"{len(self.held)} connections reached the server, not {count}"}
        return {"count": count}

    def drop(self):
        """Closes all connections. The server must close, because a relay cannot distinguish a client that has closed
        its connection from a client that has closed only its direction."""
        for fd, connection in self.held.items():
            self.epoll.unregister(fd)
            connection.close()
        self.held.clear()

    def serve(self):
        while self.turn(1):
            while b"\n" in self.pending:
                line, _, self.pending = self.pending.partition(b"\n")
                request = json.loads(line)
                if request["do"] == "drop":
                    self.drop()
                    request["count"] = 0
                answer = self.wait(request["count"], request["seconds"])
                print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    Holder(int(sys.argv[1])).serve()
