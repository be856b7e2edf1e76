"""The parts of the benchmarks; `benches/relay.py`, `sections.py` and `transparent.py` are where they start."""

import sys

sys.dont_write_bytecode = True  # they run as root, in folders of somebody else's
