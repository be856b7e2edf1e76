"""Treatments of the transparent benchmark: the programs in the box, or in both boxes, between client and server.

`direct` is a box that only forwards and has no rules. All others relay: `tcp` listens on an address of the box, the
rest are transparent. A treatment removes its rules from the namespace when it ends, and the benchmark checks this.
"""

import time
from dataclasses import dataclass
from typing import List

from bench import configs, netns, origin, speak
from bench.chains import admin_socket
from bench.programs import Program, Row, Trouble, output_of
from bench.treatments import EKIDEN, FLOOR, PEER, Treatment

NEAR, FAR = "relay", "far"
FIRST_RULES = 3  # policy routing rules of a new namespace


@dataclass(frozen=True)
class Box(Treatment):
    """A treatment of the transparent benchmark; `command` returns a `Step` for each relay."""
    pair: bool = False  # whether the route to the server leads through both boxes

    @property
    def server(self):
        return netns.FAR_SERVER_IP if self.pair else netns.SERVER_IP


@dataclass(frozen=True)
class Step:
    """One relay: its box, its port, its command, a text in its output when it is ready (may be empty), and its cleanup
    command."""
    role: str
    port: int
    argv: List[str]
    sign: str
    undo: List[str]


class Boxes(Row):
    """The running programs of a treatment, with the namespaces that they change."""

    def __init__(self, network):
        super().__init__()
        self.network, self.steps = network, []

    def begin(self, step, log):
        self.steps.append(step)
        program = Program(self.network, step.role, step.argv, log)
        self.programs.append(program)
        self.wait_for(step, program)

    def wait_for(self, step, program, seconds=10):
        """Waits until the relay listens and reports that it is ready."""
        deadline = time.monotonic() + seconds
        while not (says(program, step.sign) and listens(self.network, step)):
            if not program.is_alive() or time.monotonic() > deadline:
                raise Trouble(f"nothing listens on port {step.port}; last words: {program.last_words()}")
            time.sleep(0.02)

    def stop(self):
        super().stop()
        for step in self.steps:
            if step.undo:
                output_of(self.network, step.role, step.undo, 10)
        for role in {step.role for step in self.steps}:
            clear(self.network, role)
        self.steps = []


def says(program, sign):
    with open(program.log, errors="replace") as f:
        return sign in f.read()


def listens(network, step):
    return output_of(network, step.role, ["ss", "-Hltn", f"sport = :{step.port}"], 5)


def left_in_kernel(network, role):
    """Returns the numbers of rules in a namespace: lines of nftables, policy routing rules, and local routes."""
    ask = (["nft", "-t", "list", "ruleset"], ["ip", "rule"], ["ip", "route", "show", "table", "all", "type", "local"])
    return tuple(len(output_of(network, role, argv, 5).splitlines()) for argv in ask)


def elements(network, role):
    """Returns the number of elements with a timeout in the sets of nftables: connections."""
    return output_of(network, role, ["nft", "list", "ruleset"], 10).count(" expires ")


def clear(network, role):
    """Resets a box to plain forwarding. Removes the empty chains that iptables-nft leaves, and the sockets of closed
    connections, which the kernel would match to packets that reuse their ports. Ends the run if a relay has left other
    rules."""
    rules = [line.strip() for line in output_of(network, role, ["nft", "list", "ruleset"], 5).splitlines()]
    empty = ("table ip raw", "table ip6 raw", "chain", "type", "}")
    left = [line for line in rules if line and not line.startswith(empty)]
    left += output_of(network, role, ["ip", "rule"], 5).splitlines()[FIRST_RULES:]
    if left:
        raise SystemExit(f"bench: the relay before has left rules in the box, so nothing else can be measured: {left}")
    output_of(network, role, ["nft", "flush", "ruleset"], 5)
    output_of(network, role, ["ss", "-K", "-ta"], 10)


def direct(_binary, _place):
    return []


def ekiden_step(role, binary, place, port, listener, undo=(), more=""):
    text = configs.ekiden_box(listener, admin_socket(place.folder, port), more)
    return Step(role, port, [binary, "run", "-c", place.config(text, port)], " listening ",
                [binary, *undo] if undo else [])


def tcp(binary, place):
    target = f"{place.target[0]}:{place.target[1]}"
    listener = configs.EKIDEN_TCP.format(port=place.port, target=target)
    return [ekiden_step(NEAR, binary, place, place.port, listener)]


def transparent(connect, roles=(NEAR,), ports=(origin.PORT,), sessions=None):
    """Returns one daemon per server port in each box. The daemons of a box divide `sessions` among them."""
    def command(binary, place):
        steps = []
        for role in roles:
            for instance, port in enumerate(ports, 1):
                here = place.port + len(steps)
                listener = configs.ekiden_transparent(here, port, connect)
                more = configs.ekiden_instance(instance, sessions and sessions // len(ports))
                undo = ("rules", "remove", "--instance", str(instance))
                steps.append(ekiden_step(role, binary, place, here, listener, undo, more))
        return steps
    return command


HAPROXY_DO = ('nft -f "$1" && ip rule add fwmark 1 lookup 100 && ip route add local default dev lo table 100 && '
              'shift && exec "$@"')
HAPROXY_UNDO = "nft delete table inet haproxy; ip rule del lookup 100; ip route flush table 100"


def haproxy(binary, place):
    config, rules = configs.haproxy_transparent(place)
    files = place.config(rules, f"rules-{place.port}"), place.config(config)
    return [Step(NEAR, place.port, ["sh", "-c", HAPROXY_DO, "sh", files[0], binary, "-db", "-f", files[1]], "",
                 ["sh", "-c", HAPROXY_UNDO])]


BOXES = (
    Box("direct", FLOOR, speak.TCP, "curl", direct),
    Box("tcp", EKIDEN, speak.TCP, "ekiden", tcp),
    Box("hold", EKIDEN, speak.TCP, "ekiden", transparent("hold")),
    Box("strict", EKIDEN, speak.TCP, "ekiden", transparent("strict")),
    Box("haproxy transparent", PEER, speak.TCP, "haproxy", haproxy),
    Box("direct, 2 boxes", FLOOR, speak.TCP, "curl", direct, pair=True),
    Box("hold, 2 boxes", EKIDEN, speak.TCP, "ekiden", transparent("hold", (NEAR, FAR)), pair=True),
)
