"""Reads metrics from the admin listener of a running ekiden."""

import http.client
import re
import socket

from bench.programs import Trouble


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=5)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def metrics(place):
    """Returns the text of /metrics of the relay with the admin listener at `place`: the path of a socket, or a port of
    127.0.0.1."""
    admin = UnixConnection(place) if isinstance(place, str) else http.client.HTTPConnection("127.0.0.1", place, timeout=5)
    try:
        admin.request("GET", "/metrics")
        return admin.getresponse().read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise Trouble(f"/metrics of a relay: {error}") from None
    finally:
        admin.close()


def total(place, name, **labels):
    """Returns the sum of all values of the metric `name` with these labels."""
    found = re.findall(rf"^{name}(?:{{(.*)}})? (\d+)", metrics(place), re.MULTILINE)
    return sum(int(value) for have, value in found if all(f'{k}="{v}"' in have for k, v in labels.items()))
