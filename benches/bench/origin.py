"""The server: nginx with a large, a medium and a tiny file, and the holder.

The files consist of distinct pages in memory (tmpfs). A sparse file would be one page of zeroes in the cache, which
favours programs that copy.
"""

import os
import shutil

from bench.programs import Agent, Program, Trouble

PORT, HOLD_PORT, BACKGROUND_PORT, SECOND_PORT = 80, 81, 82, 83
LARGE, PARALLEL, SMALL, SOAK, PACED = "large", "parallel", "small", "soak", "paced"
WHO = "who"  # path whose response is the address and port of the client
SMALL_BYTES, SOAK_BYTES, PACED_BYTES = 64, 256 * 1024, 25000
MEMORY = "/dev/shm"

CONFIG = """
user root;
worker_processes 2;
worker_rlimit_nofile {files};
daemon off;
pid {folder}/origin.pid;
error_log {folder}/origin-errors.log error;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    default_type application/octet-stream;
    open_file_cache max=16 inactive=1h;
    client_header_timeout 300s;
    send_timeout 300s;
    keepalive_requests 1000000;
    client_body_temp_path {folder}/origin-body;
    proxy_temp_path {folder}/origin-proxy;
    fastcgi_temp_path {folder}/origin-fastcgi;
    uwsgi_temp_path {folder}/origin-uwsgi;
    scgi_temp_path {folder}/origin-scgi;
    server {{
        listen {port} backlog=8192 reuseport;
        listen {background} backlog=8192 reuseport;
        listen {second} backlog=8192 reuseport;
        root {content};
        location = /{who} {{ return 200 $remote_addr:$remote_port; }}
    }}
}}
"""


def write_file(path, size):
    block = os.urandom(1 << 20)
    with open(path, "wb") as f:
        for _ in range(size >> 20):
            f.write(block)
        f.write(block[:size & ((1 << 20) - 1)])


def check_memory(wanted):
    free = shutil.disk_usage(MEMORY).free
    with open("/proc/meminfo") as f:
        available = next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable:"))
    if wanted > min(free, available) // 2:
        raise SystemExit(f"bench: the served files need {wanted >> 20} MiB in {MEMORY}, more than half of what is "
                         f"free; try --quick")


class Origin:
    """nginx and the holder. `content` is the directory of the files in memory, which the caller removes."""

    def __init__(self, network, folder, content, sizes, files):
        check_memory(sizes.large + sizes.parallel)
        for name, size in ((LARGE, sizes.large), (PARALLEL, sizes.parallel), (SMALL, SMALL_BYTES), (SOAK, SOAK_BYTES),
                           (PACED, PACED_BYTES)):
            write_file(os.path.join(content, name), size)
        os.chmod(content, 0o755)
        config = os.path.join(folder, "origin.conf")
        with open(config, "w") as f:
            f.write(CONFIG.format(folder=folder, content=content, port=PORT,
                                  background=BACKGROUND_PORT, second=SECOND_PORT, who=WHO, files=files))
        argv = ["nginx", "-p", folder, "-e", f"{folder}/origin-errors.log", "-c", config]
        self.nginx = Program(network, "server", argv, f"{folder}/origin.log")
        try:
            self.holder = Agent(network, "server", "holder.py", f"{folder}/holder.log", HOLD_PORT)
        except BaseException:
            self.nginx.stop()
            raise

    def check(self):
        if not self.nginx.is_alive():
            raise Trouble(f"the nginx that serves has ended: {self.nginx.last_words()}")

    def close(self):
        self.holder.stop()
        self.nginx.stop()
