#!/usr/bin/env python3
"""Runs experiments in real and in virtual time, and compares the ratios of their treatments. As root, on an idle machine.

usage: benches/cross_check.py LAB EKIDEN DIRECTORY NAME[:BLOCKS]...     the paths of ekiden-lab and ekiden; results go to DIRECTORY

A cell agrees if the ratio of each clock is within the interval of the ratio of the other clock. In virtual time, blocks
without random events are equal and their intervals have no width, so the table has two weaker counts as well: cells
whose ratio in virtual time is within the interval of real time, and cells that meet this condition or differ by less
than 2 %.
"""
import json
import os
import pathlib
import subprocess
import sys

SMALL = 0.02
MISSED = 1  # exit status of ekiden-lab for missed expectations


def results(lab, ekiden, directory, name, blocks, clock):
    out = directory / f"{name}-{clock}"
    # An interrupted comparison resumes: completed runs in DIRECTORY are not repeated.
    command = [lab, "run", name, f"--{clock}", "--out", out, "--ekiden", ekiden]
    status = subprocess.run(command + (["--blocks", blocks] if blocks else []), stdout=subprocess.DEVNULL).returncode
    if status not in (0, MISSED):
        sys.exit(f"{name}: ekiden-lab ended with {status}")
    report = json.loads((out / "report.json").read_text())
    if clock == "real" and any(run["invalid"] for run in report["runs"]):
        sys.exit(f"{name}: invalid runs in real time")
    cells = {(cell["treatment"], *sorted(cell["levels"].items())): cell["ratio"] for cell in report["cells"]}
    took = sum(run["took"] for run in report["runs"])
    return {cell: ratio for cell, ratio in cells.items() if ratio}, report["manifest"]["blocks"], took


def is_within(ratio, other):
    return other["low"] <= ratio["median"] <= other["high"]


def main():
    lab, ekiden = (os.path.abspath(path) for path in sys.argv[1:3])
    directory = pathlib.Path(sys.argv[3])
    print("| experiment | blocks | cells | agree | virtual within real | that or below 2 % | largest difference | other cells: real, virtual |\n|---|---:|---:|---:|---:|---:|---:|---|")
    for word in sys.argv[4:]:
        name, _, blocks = word.partition(":")
        real, count, _ = results(lab, ekiden, directory, name, blocks, "real")
        virtual, _, _ = results(lab, ekiden, directory, name, blocks, "virtual")
        differences, agree, inside, odd = [], 0, 0, []
        for cell in sorted(real.keys() & virtual.keys()):
            one, other = real[cell], virtual[cell]
            difference = other["median"] / one["median"] - 1
            differences.append(abs(difference))
            agree += is_within(one, other) and is_within(other, one)
            inside += is_within(other, one)
            if not is_within(other, one) and abs(difference) >= SMALL:
                levels = " ".join(f"{factor} {level}" for factor, level in cell[1:])
                odd.append(f"{cell[0]} {levels}".strip() + f": {one['median']:.2f} [{one['low']:.2f} – {one['high']:.2f}], {other['median']:.2f} [{other['low']:.2f} – {other['high']:.2f}]")
        print(f"| `{name}` | {count} | {len(differences)} | {agree} | {inside} | {len(differences) - len(odd)} | {max(differences) * 100:.1f} % | {'<br>'.join(odd) or '–'} |", flush=True)


main()
