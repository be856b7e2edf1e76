"""Treatments of the sections benchmark: chains of relays, and common pairs of tunnel programs.

All programs of a chain run in the relay's namespace and connect over its loopback; clients connect only to the first
one. Keys are created for each run. Peers run with their defaults: only keys, certificates, ports and the logging of the
negotiated cipher are set.
"""

import os
import subprocess
from dataclasses import dataclass
from typing import List

from bench import configs, speak
from bench.netns import LOOPBACK_IP
from bench.programs import Trouble
from bench.treatments import EARLIER, EKIDEN, FLOOR, PEER, Treatment, binary_of


@dataclass(frozen=True)
class Step:
    """One program of a chain, and the port it listens on."""
    port: int
    argv: List[str]


def direct(_binary, _place):
    return []


def output_of(*argv):
    """Returns the output of a program. Raises Trouble if it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Trouble(f"{os.path.basename(argv[0])} {argv[1]}: {' '.join(done.stderr.split())[-200:]}")
    return done.stdout


def made(path, *argv):
    """Returns `path`. If the file does not exist, `argv` creates it."""
    if not os.path.exists(path):
        output_of(*argv)
    return path


class Key:
    """The key of relay `number` in all chains, as `ekiden keygen` prints it."""

    def __init__(self, binary, place, number):
        self.path = os.path.join(place.folder, f"key-{number}")
        if not os.path.exists(self.path):
            self._make(binary)
        with open(self.path) as f:
            words = dict(line.split(": ", 1) for line in f.read().splitlines())
        self.public = words["public-key"]

    def _make(self, binary):
        printed = output_of(binary, "keygen")
        with open(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
            f.write(printed)


def admin_socket(folder, port):
    return os.path.join(folder, f"admin-{port}.sock")


def ekiden(*kinds, encrypt=False):
    """Returns a chain of relays with these kinds of listeners. A `tcp` listener forwards to the next relay, or through
    sections to all relays after it."""
    def command(binary, place):
        keys = [Key(binary, place, n) if "section" in kinds else None for n in range(len(kinds))]
        steps = []
        for number in reversed(range(len(kinds))):  # last relay first, so that each relay finds the next one
            port = place.port + number
            text = configs.ekiden(place, kinds, number, keys, encrypt, admin_socket(place.folder, port))
            steps.append(Step(port, [binary, "run", "-c", place.config(text, port)]))
        return steps
    return command


# sshd needs an empty /run/sshd, which must not be created on the host. Therefore sshd has a private /run in the mount
# namespace that `ip netns exec` creates.
OWN_RUN = ["sh", "-c", 'mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$@"', "sh"]


def ssh(binary, place):
    """Returns `ssh -L` to a private sshd: a forwarded port, no shell, no agent, no user configuration."""
    host, user = (made(f"{place.folder}/{name}", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                       f"{place.folder}/{name}") for name in ("ssh-host", "ssh-user"))
    inner = place.port + 1
    with open(f"{host}.pub") as f:
        known = place.config(f"[{LOOPBACK_IP}]:{inner} {f.read()}", "known-hosts")
    server = place.config(configs.sshd(inner, host, f"{user}.pub"), inner)
    options = [f"UserKnownHostsFile={known}", "BatchMode=yes", "ExitOnForwardFailure=yes"]
    return [
        Step(inner, [*OWN_RUN, binary_of("sshd"), "-D", "-e", "-f", server]),
        Step(place.port, [binary, "-v", "-N", "-F", "none", "-i", user, *(word for o in options for word in ("-o", o)),
                          "-p", str(inner), "-L", f"0.0.0.0:{place.port}:{place.target[0]}:{place.target[1]}",
                          f"root@{LOOPBACK_IP}"]),
    ]


def stunnel(binary, place):
    inner = place.port + 1
    pem = made(f"{place.folder}/stunnel.pem", "openssl", "req", "-new", "-x509", "-nodes", "-subj", "/CN=relay",
               "-keyout", f"{place.folder}/stunnel.pem", "-out", f"{place.folder}/stunnel.crt")
    certificate = f"{place.folder}/stunnel.crt"
    server = configs.stunnel_server(inner, place.target, pem, certificate)
    client = configs.stunnel_client(place.port, inner, certificate)
    return [Step(port, [binary, place.config(text, port)]) for port, text in ((inner, server), (place.port, client))]


CHAINS = (
    Treatment("direct", FLOOR, speak.TCP, "curl", direct),
    Treatment("tcp", EKIDEN, speak.TCP, "ekiden", ekiden("tcp")),
    Treatment("tcp-tcp", EKIDEN, speak.TCP, "ekiden", ekiden("tcp", "tcp")),
    Treatment("tcp-section", EKIDEN, speak.TCP, "ekiden", ekiden("tcp", "section")),
    Treatment("tcp-section-section", EKIDEN, speak.TCP, "ekiden", ekiden("tcp", "section", "section")),
    Treatment("tcp-section encrypted", EKIDEN, speak.TCP, "ekiden", ekiden("tcp", "section", encrypt=True)),
    Treatment("ssh -L", PEER, speak.TCP, "ssh", ssh),
    Treatment("stunnel", PEER, speak.TCP, "stunnel", stunnel),
)

# The chains of an earlier build, so that one run measures the effect of a change.
if os.environ.get("EKIDEN_BEFORE"):
    CHAINS += tuple(Treatment(f"before {t.name}", EARLIER, t.way, "ekiden-before", t.command)
                    for t in CHAINS if t.kind == EKIDEN)
