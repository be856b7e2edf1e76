#!/usr/bin/env python3
"""Measures virtual time: real seconds per virtual second on one processor, and the accuracy of a path of 50 ms.

usage: benches/virtual.py LAB EKIDEN [KERNEL]     the paths of ekiden-lab, ekiden and of a virtual kernel
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

WIRE = """lab = 1
name = "wire"
[host.client]
[host.server]
[link.wire]
ends = ["client", "server"]
delay = "25ms"
rate = "100Mbit/s"
"""
BUFFERS = 'sysctl = { "net.ipv4.tcp_rmem" = "4096 131072 67108864", "net.ipv4.tcp_wmem" = "4096 65536 67108864" }'
RELAY = """lab = 1
name = "relay"
title = "A relay on a path of 50 ms"
[default.host]
congestion = "cubic"
BUFFERS
[host.client]
[host.relay]
forward = true
[host.server]
[link.near]
ends = ["client", "relay"]
delay = "12.5ms"
rate = "RATE"
[link.far]
ends = ["relay", "server"]
delay = "12.5ms"
rate = "RATE"
[workload]
protocol = "http"
file = "SIZE"
chain = ["relay"]
[treatment.direct]
program = "direct"
[treatment.ekiden]
program = "ekiden"
mode = "socks"
[experiment]
treatments = ["direct", "ekiden"]
blocks = { quick = 1, full = 1 }
"""
FLOW = """on server iperf3 --server --one-off --daemon; sleep 1
iperf3 --congestion cubic --client server --time 30 --omit 10 --json
"""


def run(command, directory, **more):
    started = time.monotonic()
    done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True, **more)
    return done.stdout, time.monotonic() - started


def row(name, figure, wanted, is_met):
    print(f"| {name} | {figure} | {wanted} | {'met' if is_met else '**missed**'} |", flush=True)


def relay(lab, ekiden, kernel, directory, rate, size, bar):
    text = RELAY.replace("BUFFERS", BUFFERS).replace("RATE", rate).replace("SIZE", size)
    pathlib.Path(directory, "relay.toml").write_text(text)
    options = ["--only", "ekiden", "--jobs", "1", "--fresh", "--out", "out", "--ekiden", ekiden]
    _, real = run([lab, "run", "relay.toml", "--virtual", *kernel, *options], directory)
    made = json.loads(pathlib.Path(directory, "out/runs.jsonl").read_text())
    cost = real / made["took"]
    figure = f"{cost:.2f} s ({made['metrics']['mb_s'] * 8:.1f} Mbit/s; {made['took']:.1f} s in {real:.1f} s)"
    row(f"relay at {rate}, for each virtual second", figure, f"<= {bar} s", cost <= bar)


def main():
    lab, ekiden, *kernel = [os.path.abspath(path) for path in sys.argv[1:]]
    kernel = ["--kernel", kernel[0]] if kernel else []
    print("| bar | figure | wanted | |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory, "wire.toml").write_text(WIRE)
        _, real = run([lab, "kernel", "run", *kernel, "--", "sleep", "1000"], directory, stdin=subprocess.DEVNULL)
        row("idle, for each virtual second", f"{real / 1000:.4f} s", "<= 0.01 s", real / 1000 <= 0.01)
        relay(lab, ekiden, kernel, directory, "100Mbit/s", "100MB", 0.3)
        relay(lab, ekiden, kernel, directory, "1Gbit/s", "1GB", 1)
        shell = [lab, "shell", "wire.toml", "client", "--virtual", *kernel]
        text, _ = run(shell, directory, input="ping -q -c 20 -i 0.2 server")
        figures = text[text.index("rtt"):].strip()
        row("ping, 50 ms and 100 Mbit/s", figures, "deviation < 1 us", float(figures.split()[-2].split("/")[-1]) < 0.001)
        text, _ = run(shell, directory, input=FLOW)
        rate = json.loads(text)["end"]["sum_received"]["bits_per_second"]
        share = rate / (100e6 * 1448 / 1500)
        row("CUBIC at 100 Mbit/s", f"{rate / 1e6:.4f} Mbit/s, {share:.7f} of 1448/1500", "within 0.1 %", abs(share - 1) < 0.001)


main()
