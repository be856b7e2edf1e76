"""Three network namespaces in a row, client -- relay -- server, connected by veth pairs, and their removal. A fourth,
`far`, is part of a second path to the server: client -- relay -- far -- server.

Names contain the process ID of the run, so that two runs do not collide and `sweep` can remove the namespaces of killed
runs. The network of the host is not changed.
"""

import os
import signal
import subprocess
import time

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # each *.py there is a benchmark
PREFIX = "ekiden-bench-"
CLIENT_NET, SERVER_NET, BETWEEN_NET, FAR_NET = "10.203.1", "10.203.2", "10.203.3", "10.203.4"
RELAY_IP = CLIENT_NET + ".1"  # the relay's address for clients
RELAY_UP_INTERFACE = "to-server"
RELAY_UP_IP = SERVER_NET + ".1"
SERVER_IP = SERVER_NET + ".2"
FAR_IP = BETWEEN_NET + ".2"
FAR_SERVER_IP = FAR_NET + ".2"  # the server's address behind both boxes
CLIENT_SIDE = "to-client"  # interface names in every box
FAR_TABLE = "100"
LOOPBACK_IP = "127.0.0.1"  # for connections between the relays of a chain

# Without --default-control, each route sets the congestion control, because the kernel may refuse the sysctl in a
# namespace.
CONGESTION = ("congctl", "cubic")
DEFAULT_CONTROL = "net.ipv4.tcp_congestion_control"

# role, interface, address: one row for each end of a veth pair
ENDS = (
    ("client", "eth0", CLIENT_NET + ".2"),
    ("relay", CLIENT_SIDE, RELAY_IP),
    ("relay", RELAY_UP_INTERFACE, RELAY_UP_IP),
    ("server", "eth0", SERVER_IP),
)
FAR_ENDS = (
    ("relay", "to-far", BETWEEN_NET + ".1"),
    ("far", CLIENT_SIDE, FAR_IP),
    ("far", "to-server", FAR_NET + ".1"),
    ("server", "eth1", FAR_SERVER_IP),
)

# Equal for all treatments. Many short connections need many ports that no listener uses. The number of connections in
# TIME_WAIT is limited so that a treatment does not slow down the next one.
SYSCTLS = {
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.ip_local_port_range": "10000 65000",
    "net.ipv4.tcp_tw_reuse": "1",
    "net.ipv4.tcp_max_tw_buckets": "4096",
    "net.ipv4.tcp_max_syn_backlog": "8192",
    "net.core.somaxconn": "8192",
}


def run(*argv, check=True):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def is_running(pid):
    """Returns whether `pid` is a running benchmark, not another process with a reused ID."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            words = f.read()
        return any(name.endswith(".py") and name.encode() in words for name in os.listdir(SCRIPTS))
    except OSError:
        return False


def owner_of(name):
    digits = name[len(PREFIX):].split("-")[0]
    return int(digits) if digits.isdigit() else 0


def is_leftover(name):
    return name.startswith(PREFIX) and owner_of(name) != os.getpid() and not is_running(owner_of(name))


def sweep():
    """Removes the namespaces of dead runs, and kills the programs in them."""
    names = [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.split()]
    for name in filter(is_leftover, names):
        remove(name)


def remove(name):
    for pid in run("ip", "netns", "pids", name, check=False).split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
    run("ip", "netns", "del", name, check=False)


class Network:
    """The namespaces. A context manager, which removes them on exit."""

    def __init__(self, ends=ENDS, default_control=None):
        self.ends = ends
        # A congestion control that a program sets has precedence over the default of the system, but not over a route.
        self.congestion = () if default_control else CONGESTION
        self.sysctls = {**SYSCTLS, **({DEFAULT_CONTROL: default_control} if default_control else {})}
        self.names = {role: f"{PREFIX}{os.getpid()}-{role}" for role, _, _ in ends}

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for name in self.names.values():
            remove(name)
        # The kernel removes a namespace in the background. Wait, so that no namespace exists when the run ends.
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and any(os.path.exists(f"/run/netns/{n}") for n in self.names.values()):
            time.sleep(0.05)

    def command(self, role, argv):
        """Returns the command line that runs `argv` in the namespace of `role`."""
        return ["ip", "netns", "exec", self.names[role], *argv]

    def route_through(self):
        """Adds routes, so that client and server can connect to each other without a relay."""
        self._forward("relay")
        self._route("client", "default", RELAY_IP)
        self._route("server", "default", RELAY_UP_IP)
        if "far" in self.names:
            self._forward("far")
            self._route("relay", FAR_NET + ".0/24", FAR_IP)
            self._route("far", "default", BETWEEN_NET + ".1")
            # Replies also pass both boxes.
            run("ip", "-n", self.names["server"], "rule", "add", "from", FAR_SERVER_IP, "lookup", FAR_TABLE)
            self._route("server", "default", FAR_NET + ".1", "table", FAR_TABLE)

    def _forward(self, role):
        run(*self.command(role, ["sysctl", "-qw", "net.ipv4.ip_forward=1"]))

    def _route(self, role, net, gateway, *table):
        run("ip", "-n", self.names[role], "route", "add", net, "via", gateway, *table, *self.congestion)

    def _build(self):
        for name in self.names.values():
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "route", "replace", "local", LOOPBACK_IP, "dev", "lo", "table", "local",
                "proto", "kernel", "scope", "host", "src", LOOPBACK_IP, *self.congestion)
            for key, value in self.sysctls.items():
                self._set(name, key, value)
        for one, other in zip(self.ends[::2], self.ends[1::2]):
            run("ip", "link", "add", one[1], "netns", self.names[one[0]], "type", "veth",
                "peer", "name", other[1], "netns", self.names[other[0]])
        for role, interface, address in self.ends:
            self._configure(self.names[role], interface, address)

    @staticmethod
    def _set(name, key, value):
        try:
            run("ip", "netns", "exec", name, "sysctl", "-qw", f"{key}={value}")
        except RuntimeError as error:
            # The default of a namespace must be a congestion control that the host allows to all users.
            hint = " (net.ipv4.tcp_allowed_congestion_control must have it)" if key == DEFAULT_CONTROL else ""
            raise SystemExit(f"bench: {error}{hint}") from None

    def _configure(self, name, interface, address):
        net = address.rsplit(".", 1)[0] + ".0/24"
        run("ip", "-n", name, "address", "add", address + "/24", "dev", interface)
        run("ip", "-n", name, "link", "set", interface, "up")
        run("ip", "-n", name, "route", "replace", net, "dev", interface, "proto", "kernel", "scope", "link",
            "src", address, *self.congestion)
