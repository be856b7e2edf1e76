"""Modules of the benchmarks. The entry points are `benches/relay.py`, `sections.py` and `transparent.py`."""

import sys

sys.dont_write_bytecode = True  # the benchmarks run as root in directories of another user
