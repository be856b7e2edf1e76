"""The parts of the relay benchmark; `benches/relay.py` is where it starts."""
