"""Messages of services to their manager (sd_notify(3)), for the programs of a machine."""

import os
import socket

PATH = "/run/notify"


class Listener:
    """Receives the messages of a service."""

    def __init__(self):
        if os.path.exists(PATH):
            os.unlink(PATH)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(PATH)
        # The service may run as another user.
        os.chmod(PATH, 0o777)
        self.socket.settimeout(0.05)

    def wait_ready(self, is_running):
        """Waits for READY=1. Returns false if the service ends before."""
        while is_running():
            try:
                if b"READY=1" in self.socket.recv(4096).splitlines():
                    return True
            except TimeoutError:
                pass
        return False
