"""An HTTP/3 server, or a client that sends one GET through a UDP association of a SOCKS5 relay. Needs aioquic (requirements.txt).

    http3.py server CERTIFICATE KEY      prints its port
    http3.py client RELAY-PORT PORT      prints the body
"""

import asyncio
import socket
import ssl
import struct
import sys

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

BODY = bytes(range(256)) * 400


class Server(QuicConnectionProtocol):
    http = None

    def quic_event_received(self, event):
        self.http = self.http or H3Connection(self._quic)
        for message in self.http.handle_event(event):
            if isinstance(message, HeadersReceived):
                self.http.send_headers(message.stream_id, [(b":status", b"200")])
                self.http.send_data(message.stream_id, BODY, end_stream=True)
                self.transmit()


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.http, self.body = H3Connection(self._quic), b""
        self.done = asyncio.get_running_loop().create_future()

    def get(self, authority):
        stream = self._quic.get_next_available_stream_id()
        fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", authority), (b":path", b"/")]
        self.http.send_headers(stream, fields, end_stream=True)
        self.transmit()

    def quic_event_received(self, event):
        for message in self.http.handle_event(event):
            if isinstance(message, DataReceived):
                self.body += message.data
            if getattr(message, "stream_ended", False) and not self.done.done():
                self.done.set_result(self.body)


class Association(asyncio.DatagramProtocol):
    """Datagrams through SOCKS5: the transport of a QUIC connection."""

    def __init__(self, relay):
        self.relay, self.inner = relay, None

    def connection_made(self, transport):
        self.transport = transport

    def sendto(self, payload, address):
        header = b"\0\0\0\1" + socket.inet_aton(address[0]) + struct.pack(">H", address[1])
        self.transport.sendto(header + payload, self.relay)

    def datagram_received(self, datagram, _):
        address = socket.inet_ntoa(datagram[4:8]), struct.unpack(">H", datagram[8:10])[0]
        self.inner.datagram_received(datagram[10:], address)

    def close(self):
        self.transport.close()


def associate(port):
    """Returns the TCP connection and the address for datagrams."""
    connection = socket.create_connection(("127.0.0.1", port), 20)
    connection.sendall(b"\5\1\0")
    assert connection.recv(2, socket.MSG_WAITALL) == b"\5\0"
    connection.sendall(b"\5\3\0\1" + bytes(6))
    reply = connection.recv(10, socket.MSG_WAITALL)
    assert reply[1] == 0, reply
    return connection, ("127.0.0.1", struct.unpack(">H", reply[8:])[0])


async def client(relay_port, port):
    from aioquic.quic.connection import QuicConnection
    connection, relay = associate(relay_port)
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE, server_name="localhost")
    _, association = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Association(relay), local_addr=("127.0.0.1", 0))
    association.inner = Client(QuicConnection(configuration=configuration))
    association.inner.connection_made(association)
    association.inner.connect(("127.0.0.1", port))
    await asyncio.wait_for(association.inner.wait_connected(), 20)
    association.inner.get(b"localhost")
    body = await asyncio.wait_for(association.inner.done, 20)
    connection.close()
    print("whole" if body == BODY else f"{len(body)} bytes")


async def server(certificate, key):
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    configuration.load_cert_chain(certificate, key)
    running = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Server)
    print(running._transport.get_extra_info("sockname")[1], flush=True)
    await asyncio.Event().wait()


if sys.argv[1] == "server":
    asyncio.run(server(*sys.argv[2:]))
else:
    asyncio.run(client(*map(int, sys.argv[2:])))
