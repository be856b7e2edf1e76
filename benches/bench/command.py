"""Common parts of the benchmark commands: options, requirements, signals, directories and cleanup."""

import argparse
import itertools
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from bench import measure, netns, origin, treatments

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PORTS = itertools.count(10000)


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def options(doc, treatments_known, figures_known, page):
    """Returns the parsed command line. The first line of `doc` is the description of the command, `page` the default
    output file."""
    parser = argparse.ArgumentParser(description=doc.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="few rounds of small sizes, at most 4 minutes")
    parser.add_argument("--rounds", type=int, help="how many rounds")
    slugs = [t.slug for t in treatments_known]
    parser.add_argument("--only", type=chosen(slugs), metavar="NAME,...", help="these treatments: " + " ".join(slugs))
    parser.add_argument("--figures", type=chosen(figures_known), metavar="NAME,...", default=figures_known,
                        help="these figures: " + " ".join(figures_known))
    parser.add_argument("--out", default=os.path.join(HERE, page), help="where the page is written")
    parser.add_argument("--seed", type=int, default=1, help="of the shuffled order")
    parser.add_argument("--default-control", metavar="NAME", help="the system's congestion control in all namespaces, "
                        "for example bbr; programs may choose others. Without it, all connections have cubic")
    found = parser.parse_args()
    if found.rounds is not None and found.rounds < 1:
        parser.error("--rounds must be at least 1")
    return found


def chosen(known):
    """Returns an argument type that parses a comma-separated list of known names."""
    def parse(text):
        names = [treatments.slug(n) for n in text.split(",") if n.strip()]
        wrong = [n for n in names if n not in known]
        if wrong or not names:
            raise argparse.ArgumentTypeError(f"no such name: {', '.join(wrong)}; known: {', '.join(known)}")
        return names
    return parse


def demand_root_and_programs(needed):
    if os.geteuid() != 0:
        sys.exit(f"bench: needs root, for network namespaces: sudo python3 {sys.argv[0]}")
    missing = [p for p in needed if shutil.which(p) is None]
    if missing:
        sys.exit(f"bench: missing: {' '.join(missing)}. Run scripts/setup bench")


def raise_file_limit(wanted=0):
    """Raises the hard limit of descriptors to `wanted` if permitted, and the soft limit to the hard limit. Returns the
    limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, wanted),) * 2)
    except ValueError:  # root without CAP_SYS_RESOURCE may not raise it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def free_port():
    """Returns another free port of 127.0.0.1 at each call. It is below the ephemeral ports (32768 to 60999, ip(7)), so no
    connection takes it before its program listens."""
    for port in PORTS:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass  # in use


def build(name, folder):
    """Compiles a C program of the benchmarks and returns its path."""
    binary = os.path.join(folder, name)
    subprocess.run(["cc", "-O2", "-o", binary, os.path.join(HERE, f"{name}.c")], check=True)
    treatments.BUILT[name] = binary
    return binary


def available(known, names):
    """Returns the requested treatments whose programs are installed, and warns of the others."""
    wanted = [t for t in known if names is None or t.slug in names]
    present = [t for t in wanted if treatments.binary_of(t.program)]
    for t in wanted:
        if t not in present:
            say(f"!!! LEFT OUT: {t.name}: no program at '{treatments.PROGRAMS[t.program][0]()}'")
    if not present:
        sys.exit("bench: nothing to measure")
    return present, [t for t in wanted if t not in present]


def stop_on_signals():
    def stop(number, _):
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)  # ignore further signals until the cleanup is done
        sys.exit(128 + number)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)


def sweep():
    """Removes the remains of killed runs."""
    netns.sweep()
    measure.sweep()
    for parent in (tempfile.gettempdir(), origin.MEMORY):
        for name in filter(netns.is_leftover, os.listdir(parent)):
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)


def temporary(stack, parent=None):
    prefix = f"{netns.PREFIX}{os.getpid()}-"
    return stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, dir=parent))


def write_quietly(path, page):
    with open(path, "w") as f:
        f.write(page)
    say(f"written to {path}")


def write(path, page):
    write_quietly(path, page)
    print(page, end="")
