"""The treatments: each program, its foreground command line, and the protocol of its clients.

Peers run as their manuals recommend, with higher limits of descriptors or backlog where the default is too low for the
test, and without features that slow them down, such as logs and caches. Configuration texts are in `configs.py`.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Callable, Tuple

from bench import configs, speak

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLOOR, EKIDEN, PEER, EARLIER = "floor", "ekiden", "peer", "earlier"


@dataclass(frozen=True)
class Place:
    """The listening port, the target and the directory of one start of a treatment."""
    folder: str
    port: int
    target: Tuple[str, int]
    files: int  # descriptors per process

    def config(self, text, name=None):
        """Writes `text` to a new file and returns its path. A second file of one start needs a name."""
        path = os.path.join(self.folder, f"config-{name or self.port}")
        with open(path, "w") as f:
            f.write(text)
        return path


@dataclass(frozen=True)
class Treatment:
    name: str
    kind: str
    way: str
    program: str  # a key of PROGRAMS
    command: Callable  # (binary, place) -> argv; in `chains.py` a list of `Step`

    @property
    def slug(self):
        return slug(self.name)


def slug(name):
    return re.sub(r"[\s,-]+", "-", name.strip().lower())


def built_or_installed(name):
    """Returns the program that an environment variable names (`name` in capitals), or that `scripts/setup bench` has
    built, or that of the system."""
    built = os.path.join(REPOSITORY, "target", "tools", "bin", name)
    return os.environ.get(name.upper()) or (built if os.path.exists(built) else name)


def release_binary(name):
    """Returns the path of `ekiden` or `ekiden-lab`: that in the environment variable EKIDEN or EKIDEN_LAB, or the release
    build."""
    return os.environ.get(name.upper().replace("-", "_")) or os.path.join(REPOSITORY, "target", "release", name)


def ekiden_binary():
    return release_binary("ekiden")


BUILT = {}  # programs of the benchmarks, compiled at start: name -> path

# program: (path of its binary, command that prints its version)
PROGRAMS = {
    "ekiden": (ekiden_binary, ["--version"]),
    "ekiden-before": (lambda: os.environ.get("EKIDEN_BEFORE", ""), ["--version"]),
    "splice_loop": (lambda: BUILT.get("splice_loop", "splice_loop"), None),
    "haproxy": (lambda: built_or_installed("haproxy"), ["-v"]),
    "nginx": (lambda: "nginx", ["-v"]),
    "realm": (lambda: built_or_installed("realm"), ["--version"]),
    "socat": (lambda: "socat", ["-V"]),
    "danted": (lambda: "danted", ["-v"]),
    "microsocks": (lambda: "microsocks", None),
    "squid": (lambda: "squid", ["-v"]),
    "squid-openssl": (lambda: built_or_installed("squid-openssl"), ["-v"]),
    "caddy": (lambda: built_or_installed("caddy"), ["version"]),
    "sshd": (lambda: "sshd", ["-V"]),
    "ssh": (lambda: "ssh", ["-V"]),
    "stunnel": (lambda: "stunnel", ["-version"]),
    "curl": (lambda: "curl", ["--version"]),
    "wrk": (lambda: "wrk", ["-v"]),
}


def splice_loop(binary, place):
    return [binary, str(place.port), place.target[0], str(place.target[1])]


def ekiden(scheme):
    """Returns ekiden with a listener of this kind. EKIDEN_QUERY is appended to the listener's URL, for example
    `&profile=longhaul`."""
    def command(binary, place):
        target = f"/{place.target[0]}:{place.target[1]}" if scheme == "tcp" else ""
        query = "?allow_open=true&allow_private=true" + os.environ.get("EKIDEN_QUERY", "")
        return [binary, "run", "-L", f"{scheme}://0.0.0.0:{place.port}{target}{query}"]
    return command


def configured(text, *argv):
    """Returns the command of a program with a configuration file: the binary and `argv`, in which FILE and FOLDER are
    replaced."""
    def command(binary, place):
        values = {"FILE": place.config(text(place)), "FOLDER": place.folder,
                  "ERRORS": os.path.join(place.folder, "nginx-errors.log")}
        return [binary, *(values.get(a, a) for a in argv)]
    return command


def socat(binary, place):
    return [binary, "-b", "65536", f"TCP-LISTEN:{place.port},fork,reuseaddr,backlog=4096",
            f"TCP:{place.target[0]}:{place.target[1]}"]


def realm(binary, place):
    return [binary, "-l", f"0.0.0.0:{place.port}", "-r", f"{place.target[0]}:{place.target[1]}"]


def microsocks(binary, place):
    return [binary, "-i", "0.0.0.0", "-p", str(place.port)]


def squid(text):
    """Returns squid with a private /dev/shm, in the mount namespace that `ip netns exec` creates, because squid leaves
    segments there under names that all its instances on the machine share."""
    def command(binary, place):
        inner = configured(text, "-N", "-f", "FILE")(binary, place)
        return ["sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh", *inner]
    return command


HAPROXY_RUN = ("-db", "-f", "FILE")
NGINX_RUN = ("-p", "FOLDER", "-e", "ERRORS", "-c", "FILE")

TREATMENTS = (
    Treatment("splice-loop", FLOOR, speak.TCP, "splice_loop", splice_loop),
    Treatment("ekiden tcp", EKIDEN, speak.TCP, "ekiden", ekiden("tcp")),
    Treatment("ekiden socks", EKIDEN, speak.SOCKS, "ekiden", ekiden("auto")),
    Treatment("ekiden connect", EKIDEN, speak.CONNECT, "ekiden", ekiden("auto")),
    Treatment("ekiden http", EKIDEN, speak.ABSOLUTE, "ekiden", ekiden("auto")),
    Treatment("haproxy", PEER, speak.TCP, "haproxy", configured(configs.haproxy, *HAPROXY_RUN)),
    Treatment("haproxy-1m", PEER, speak.TCP, "haproxy", configured(configs.haproxy_1m, *HAPROXY_RUN)),
    Treatment("haproxy-tuned", PEER, speak.TCP, "haproxy", configured(configs.haproxy_tuned, *HAPROXY_RUN)),
    Treatment("haproxy-http", PEER, speak.ABSOLUTE, "haproxy", configured(configs.haproxy_http, *HAPROXY_RUN)),
    Treatment("nginx stream", PEER, speak.TCP, "nginx", configured(configs.nginx_stream, *NGINX_RUN)),
    Treatment("realm", PEER, speak.TCP, "realm", realm),
    Treatment("socat", PEER, speak.TCP, "socat", socat),
    Treatment("dante", PEER, speak.SOCKS, "danted", configured(configs.dante, "-f", "FILE")),
    Treatment("microsocks", PEER, speak.SOCKS, "microsocks", microsocks),
    Treatment("squid", PEER, speak.ABSOLUTE, "squid", squid(configs.squid)),
    Treatment("squid-connect", PEER, speak.CONNECT, "squid", squid(configs.squid)),
)

# The listeners of an earlier build, so that one run measures the effect of a change.
if os.environ.get("EKIDEN_BEFORE"):
    TREATMENTS += tuple(
        Treatment(t.name.replace("ekiden", "before"), EARLIER, t.way, "ekiden-before", t.command)
        for t in TREATMENTS if t.kind == EKIDEN
    )


def binary_of(program):
    """Returns the full path of a program, or None if it is not installed."""
    return shutil.which(PROGRAMS[program][0](), path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def version_of(program):
    """Returns `program 1.2.3`, from the program itself or from Debian's package."""
    binary, (_, ask) = binary_of(program), PROGRAMS[program]
    if binary is None:
        return f"{program} missing"
    argv = [binary, *ask] if ask else ["dpkg-query", "-W", "-f", "${Version}", program]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return program
    found = re.search(r"v?(\d+(?:\.\d+)+[-\w.+~]*)", done.stdout + done.stderr)
    return f"{program} {found.group(1).rstrip('.')}" if found else program
