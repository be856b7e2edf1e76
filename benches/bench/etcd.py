"""A private etcd that can be stopped, killed and restored, and a proxy that delays its traffic."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time

from bench.command import free_port


def run(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True, env={**os.environ, "ETCDCTL_API": "3"}).stdout


class Etcd:
    def __init__(self, folder):
        self.folder, self.data = folder, f"{folder}/etcd"
        self.client, self.peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.process = None

    def start(self):
        argv = ["etcd", "--data-dir", self.data, "--listen-client-urls", self.client, "--advertise-client-urls", self.client,
                "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer,
                "--initial-cluster", f"default={self.peer}"]
        with open(f"{self.folder}/etcd.log", "a") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)

    def ready(self):
        for _ in range(200):
            try:
                return run("etcdctl", "--endpoints", self.client, "endpoint", "health")
            except subprocess.CalledProcessError:
                time.sleep(0.05)
        sys.exit("bench: etcd does not start; see its log")

    def stop(self, how):
        self.process.send_signal(how)
        self.process.wait()

    def snapshot(self):
        run("etcdctl", "--endpoints", self.client, "snapshot", "save", f"{self.folder}/copy")

    def restore(self):
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.data)
        run("etcdctl", "snapshot", "restore", f"{self.folder}/copy", "--data-dir", self.data,
            "--initial-advertise-peer-urls", self.peer, "--initial-cluster", f"default={self.peer}")
        self.start()


async def pour(reader, writer, delay=lambda: 0):
    """Copies bytes from `reader` to `writer`. Each piece is delayed by `delay()` seconds."""
    try:
        while data := await reader.read(65536):
            await asyncio.sleep(delay())
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


class SlowWay:
    """A proxy to etcd that delays each direction by `delay` seconds."""

    def __init__(self, target):
        self.host, self.port = target.removeprefix("http://").split(":")
        self.delay = 0.0

    async def start(self):
        self.server = await asyncio.start_server(self.carry, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def carry(self, reader, writer):
        try:
            onward = await asyncio.open_connection(self.host, int(self.port))
        except OSError:
            return writer.close()
        try:
            await asyncio.gather(*(pour(*ends, lambda: self.delay) for ends in ((reader, onward[1]), (onward[0], writer))))
        except asyncio.CancelledError:
            # The measurement has ended.
            writer.close()
