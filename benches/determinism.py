#!/usr/bin/env python3
"""Runs experiments twice in virtual time, the second time under CPU load, and compares the bytes of runs.jsonl.

usage: benches/determinism.py LAB EKIDEN NAME[:TREATMENT,...]...     the paths of ekiden-lab and ekiden; one block each

The second run uses one machine per processor in parallel, while LOAD busy loops run on the same processors.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

LOAD = 8
MISSED = 1  # exit status of ekiden-lab for missed expectations


def run(lab, ekiden, name, treatments, jobs, directory):
    out = pathlib.Path(directory, f"{name}-{jobs}")
    command = [lab, "run", name, "--virtual", "--fresh", "--blocks", "1", "--jobs", jobs, "--out", out, "--ekiden", ekiden]
    done = subprocess.run(command + (["--only", treatments] if treatments else []), capture_output=True, text=True)
    if done.returncode not in (0, MISSED):
        sys.exit(f"{name}: ekiden-lab ended with {done.returncode}: {done.stderr}")
    return (out / "runs.jsonl").read_bytes()


def main():
    lab, ekiden = (os.path.abspath(path) for path in sys.argv[1:3])
    print("| experiment | runs | bytes | the same beside a load of 8 | real s |\n|---|---:|---:|---|---:|")
    is_same = True
    with tempfile.TemporaryDirectory() as directory:
        for word in sys.argv[3:]:
            name, _, treatments = word.partition(":")
            started = time.monotonic()
            quiet = run(lab, ekiden, name, treatments, "1", directory)
            load = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(LOAD)]
            try:
                loaded = run(lab, ekiden, name, treatments, str(os.cpu_count()), directory)
            finally:
                for process in load:
                    process.kill()
                    process.wait()
            is_same &= quiet == loaded
            verdict = "yes" if quiet == loaded else "**no**"
            print(f"| `{name}` | {len(quiet.splitlines())} | {len(quiet)} | {verdict} | {time.monotonic() - started:.0f} |", flush=True)
    sys.exit(not is_same)


main()
