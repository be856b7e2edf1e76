"""The two ends of many silent tunnels. The server returns each byte; the client opens tunnels, sends one byte through
each, and waits for its return.

    tunnel_ends.py server PORT     prints a line of JSON when it listens
    tunnel_ends.py client          then lines of JSON on stdin, with `seconds` for the longest wait;
                                   `{"do": "open", "relay": [ADDRESS, PORT], "count": N}` opens N tunnels and answers
                                   when a byte has returned through each; `{"do": "again"}` sends one more.
"""

import json
import resource
import select
import socket
import sys

AT_ONCE = 512  # maximum number of tunnels that are opened at the same time


def serve(port):
    epoll, held = select.epoll(), {}
    listener = socket.create_server(("0.0.0.0", port), backlog=8192)
    listener.setblocking(False)
    epoll.register(listener.fileno(), select.EPOLLIN)
    print(json.dumps({"port": port}), flush=True)
    while True:
        for fd, _ in epoll.poll():
            if fd == listener.fileno():
                accept_all(listener, held, epoll)
            elif not echo(held[fd]):
                held.pop(fd).close()


def accept_all(listener, held, epoll):
    try:
        while True:
            connection = listener.accept()[0]
            connection.setblocking(False)
            held[connection.fileno()] = connection
            epoll.register(connection.fileno(), select.EPOLLIN)
    except BlockingIOError:
        pass


def echo(connection):
    """Returns received bytes. Returns false when the connection has ended or failed."""
    try:
        received = connection.recv(64)
        return bool(received) and connection.send(received) > 0
    except BlockingIOError:
        return True
    except OSError:
        return False


class Client:
    def __init__(self):
        self.tunnels = []
        self.epoll = select.epoll()

    def open(self, relay, count, seconds):
        waiting, failed = {}, 0
        for _ in range(count):
            tunnel = socket.socket()
            tunnel.setblocking(False)
            tunnel.connect_ex(tuple(relay))
            waiting[tunnel.fileno()] = tunnel
            self.epoll.register(tunnel.fileno(), select.EPOLLOUT | select.EPOLLIN | select.EPOLLONESHOT)
            if len(waiting) >= AT_ONCE:
                failed += self.turn(waiting, seconds)
        while waiting:
            failed += self.turn(waiting, seconds)
        return {"open": len(self.tunnels), "failed": failed}

    def turn(self, waiting, seconds):
        """Handles the events of one call of poll. Returns the number of tunnels that have failed."""
        events, failed = self.epoll.poll(seconds), 0
        if not events:
            raise TimeoutError(f"{len(waiting)} tunnels carry nothing for {seconds} s")
        for fd, event in events:
            try:
                if event & select.EPOLLIN:
                    if waiting[fd].recv(64) != b"1":
                        raise ConnectionError("a wrong byte")
                    self.tunnels.append(waiting.pop(fd))
                else:
                    waiting[fd].send(b"1")
                    self.epoll.modify(fd, select.EPOLLIN | select.EPOLLONESHOT)
            except OSError:
                waiting.pop(fd).close()
                failed += 1
        return failed

    def again(self, seconds):
        waiting = {tunnel.fileno(): tunnel for tunnel in self.tunnels}
        self.tunnels, failed = [], 0
        for fd in waiting:
            self.epoll.modify(fd, select.EPOLLOUT | select.EPOLLONESHOT)
        while waiting:
            failed += self.turn(waiting, seconds)
        return {"open": len(self.tunnels), "failed": failed}


def main():
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    if sys.argv[1] == "server":
        serve(int(sys.argv[2]))
    client = Client()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(client, request.pop("do"))(**request)
        except OSError as error:
            answer = {"trouble": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
