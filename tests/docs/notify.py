"""Receives the messages of a service to its manager (sd_notify(3)), for the programs of a machine."""

import os
import socket

PATH = "/run/notify"


class Listener:
    """The socket of the service manager."""

    def __init__(self):
        if os.path.exists(PATH):
            os.unlink(PATH)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(PATH)
        # The service may run as another user.
        os.chmod(PATH, 0o777)
        self.socket.settimeout(0.05)

    def wait_ready(self, is_running):
        """Waits for READY=1. Returns False if the service ends first."""
        while is_running():
            try:
                if b"READY=1" in self.socket.recv(4096).splitlines():
                    return True
            except TimeoutError:
                pass
        return False
