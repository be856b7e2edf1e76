"""The handshake of each protocol: none (tcp), SOCKS5, HTTP CONNECT, or an absolute-form request."""

import asyncio
import socket
import struct

TCP, SOCKS, CONNECT, ABSOLUTE = "tcp", "socks", "connect", "absolute"


def receive(session, count):
    got = b""
    while len(got) < count:
        chunk = session.recv(count - len(got))
        if not chunk:
            raise ConnectionError(f"the relay closed during its handshake, after {got!r}")
        got += chunk
    return got


def receive_head(session):
    got = b""
    while b"\r\n\r\n" not in got:
        chunk = session.recv(4096)
        if not chunk:
            raise ConnectionError(f"closed before the end of a head: {got[:80]!r}")
        got += chunk
    head, _, rest = got.partition(b"\r\n\r\n")
    if head.split()[1:2] != [b"200"]:
        raise ConnectionError(f"not a 200: {head.splitlines()[0][:80]!r}")
    return rest


def socks_handshake(session, target):
    session.sendall(b"\x05\x01\x00")
    if receive(session, 2) != b"\x05\x00":
        raise ConnectionError("the relay did not take SOCKS5 without authentication")
    session.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(target[0]) + struct.pack(">H", target[1]))
    answer = receive(session, 10)
    if answer[1] != 0:
        raise ConnectionError(f"SOCKS5 answer {answer[1]}")


async def open_socks(port, target):
    """Returns reader and writer of a SOCKS5 session through port `port` to port `target`, both of 127.0.0.1."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x05\x01\x00")
    if await reader.readexactly(2) != b"\x05\x00":
        raise ConnectionError("the relay did not take SOCKS5 without authentication")
    writer.write(b"\x05\x01\x00\x01" + socket.inet_aton("127.0.0.1") + struct.pack(">H", target))
    answer = await reader.readexactly(10)
    if answer[1] != 0:
        writer.close()
        raise ConnectionError(f"SOCKS5 answer {answer[1]}")
    return reader, writer


def connect_handshake(session, target):
    name = f"{target[0]}:{target[1]}"
    session.sendall(f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
    receive_head(session)


def open_session(way, relay, target, timeout, buffer=0):
    """Returns a connection to the relay, which is connected to the target except with absolute-form."""
    session = socket.socket()
    try:
        session.settimeout(timeout)
        session.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if buffer:
            session.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        session.connect(tuple(relay))
        if way == SOCKS:
            socks_handshake(session, target)
        elif way == CONNECT:
            connect_handshake(session, target)
        return session
    except BaseException:
        session.close()
        raise


def request(way, target, path, keep=False):
    """Returns a GET request; without `keep` it asks the server to close."""
    host = f"{target[0]}:{target[1]}"
    where = f"http://{host}/{path}" if way == ABSOLUTE else f"/{path}"
    close = "" if keep else "Connection: close\r\n"
    return f"GET {where} HTTP/1.1\r\nHost: {host}\r\n{close}\r\n".encode()


def read_answer(session, size):
    """Reads the head and `size` bytes of body. Raises an error unless the response has status 200 and this size."""
    body = len(receive_head(session))
    while body < size:
        chunk = session.recv(size - body)
        if not chunk:
            raise ConnectionError(f"{body} of {size} bytes of body")
        body += len(chunk)
    if body != size:
        raise ConnectionError(f"{body} bytes of body, not {size}")


def curl_arguments(way, relay, target, scheme="http"):
    """Returns the options of curl for this protocol, and the URL. `scheme` is that of an HTTP proxy."""
    proxy = f"{relay[0]}:{relay[1]}"
    direct = f"http://{target[0]}:{target[1]}"
    if way == TCP:
        return [], f"http://{proxy}"
    if way == SOCKS:
        return ["--socks5-hostname", proxy], direct
    if way == CONNECT:
        return ["--proxytunnel", "--proxy", f"{scheme}://{proxy}"], direct
    return ["--proxy", f"{scheme}://{proxy}"], direct
