"""A client of an HTTP/2 proxy, which uses the library h2. Each wait is limited by the timeout of the socket."""
import socket
import ssl

import h2.config
import h2.connection
import h2.events
import hyperframe.frame

DEADLINE = 60


class Stream:
    """The received headers, data and end of one stream."""

    def __init__(self):
        self.headers, self.data, self.ended, self.reset, self.interim = None, bytearray(), False, None, []
        # Whether the client returns flow-control credit for the received bytes.
        self.reading = True

    @property
    def status(self):
        return self.headers and int(self.headers[b":status"])


class Client:
    """One connection to the proxy."""

    def __init__(self, address, authority, window=1 << 20):
        context = ssl.create_default_context(cafile=authority)
        context.set_alpn_protocols(["h2", "http/1.1"])
        plain = socket.create_connection(address, DEADLINE)
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        assert self.socket.selected_alpn_protocol() == "h2"
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False))
        # The library ends the connection at GOAWAY, after which streams may still finish (RFC 9113, 6.8).
        self.h2._frame_dispatch_table[hyperframe.frame.GoAwayFrame] = self.on_goaway
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.h2.increment_flow_control_window((1 << 30) - 65535)
        self.streams, self.goaway, self.closed = {}, None, False
        self.flush()
        # The relay's SETTINGS have arrived: without them, h2 assumes a larger limit.
        self.until(lambda: self.h2.remote_settings.max_concurrent_streams < 1 << 20)

    def on_goaway(self, frame):
        self.goaway = frame
        return [], []

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def receive(self):
        """Waits for bytes, and assigns their events to streams."""
        data = self.socket.recv(1 << 20)
        self.closed = not data
        for event in self.h2.receive_data(data) if data else []:
            self.sort(event)
        self.flush()

    def sort(self, event):
        stream = self.streams.get(getattr(event, "stream_id", None))
        if stream is None:
            return
        elif isinstance(event, h2.events.InformationalResponseReceived):
            stream.interim.append(int(dict(event.headers)[b":status"]))
        elif isinstance(event, h2.events.ResponseReceived):
            stream.headers = dict(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            stream.data += event.data
            if stream.reading and event.flow_controlled_length and not stream.ended:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            stream.ended = True
        elif isinstance(event, h2.events.StreamReset):
            stream.reset = event.error_code

    def until(self, condition):
        while not condition():
            assert not self.closed, "the relay has closed the connection"
            self.receive()

    def close(self):
        """Sends GOAWAY, and waits until the relay closes the connection."""
        self.h2.close_connection()
        self.flush()
        self.until_closed()

    def until_closed(self):
        while not self.closed:
            self.receive()

    def request(self, headers, end=False):
        number = self.h2.get_next_available_stream_id()
        self.streams[number] = Stream()
        self.h2.send_headers(number, headers, end_stream=end)
        self.flush()
        return number

    def connect(self, target, more=()):
        return self.request([(":method", "CONNECT"), (":authority", target), *more])

    def tunnel(self, target):
        number = self.connect(target)
        self.until(lambda: self.streams[number].headers)
        assert self.streams[number].status == 200, self.streams[number].headers
        return number

    def get(self, url_authority, path, scheme="http", more=()):
        headers = [(":method", "GET"), (":scheme", scheme), (":authority", url_authority), (":path", path), *more]
        number = self.request(headers, end=True)
        self.until(lambda: self.is_over(number))
        return self.streams[number]

    def is_over(self, number):
        stream = self.streams[number]
        return stream.ended or stream.reset is not None

    def send(self, number, data, end=False):
        """Sends all bytes, and waits while a flow-control window is full."""
        data = memoryview(data)
        while data:
            room = min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size, len(data))
            if room == 0:
                self.receive()
                continue
            self.h2.send_data(number, bytes(data[:room]))
            data = data[room:]
            self.flush()
        if end:
            self.end(number)

    def fill(self, number):
        """Sends bytes until the flow-control window is full. Returns their number."""
        sent = 0
        while room := min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size):
            self.h2.send_data(number, b"x" * room)
            sent += room
            self.flush()
        return sent

    def end(self, number):
        self.h2.end_stream(number)
        self.flush()

    def reset(self, number, code=8):
        self.h2.reset_stream(number, code)
        self.flush()

    def read_remaining(self, number):
        self.until(lambda: self.is_over(number))
        return bytes(self.streams[number].data)
