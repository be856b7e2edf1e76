"""Downloads one file through an HTTPS proxy by CONNECT, and discards its records without decrypting them.

    tls_client.py RELAY PORT CERTIFICATE TARGET PATH TIMEOUT

Prints the TLS version, the cipher suite, the bytes of the records and the seconds from connect to FIN, as JSON.
"""

import json
import socket
import ssl
import sys
import time

CHUNK = 1 << 20


def read_head(stream):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = stream.recv(1)
        if not byte:
            sys.exit(f"the proxy closed after {head!r}")
        head += byte
    if head.split()[1] != b"200":
        sys.exit(f"not a 200: {head!r}")


def discard(stream):
    """Returns the bytes up to FIN. The kernel drops them without a copy, because of MSG_TRUNC (tcp(7))."""
    total, buffer = 0, bytearray(CHUNK)
    # The method of the base class: that of SSLSocket decrypts.
    while count := socket.socket.recv_into(stream, buffer, CHUNK, socket.MSG_TRUNC):
        total += count
    return total


def main():
    relay, port, certificate, target, path, timeout = sys.argv[1:]
    context = ssl.create_default_context(cafile=certificate)
    start = time.monotonic()
    with socket.create_connection((relay, int(port)), float(timeout)) as plain:
        with context.wrap_socket(plain, server_hostname=relay) as stream:
            stream.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            read_head(stream)
            stream.sendall(f"GET /{path} HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n".encode())
            read_head(stream)
            total = discard(stream)
            seconds = time.monotonic() - start
            print(json.dumps({"version": stream.version(), "suite": stream.cipher()[0], "bytes": total, "seconds": seconds}))


if __name__ == "__main__":
    main()
