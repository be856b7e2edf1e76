"""The parts of the benchmarks; `benches/relay.py` and `benches/sections.py` are where they start."""
