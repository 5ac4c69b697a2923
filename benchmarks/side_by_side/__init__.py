"""What `benchmarks/speed.py` is made of. Read first: `protocol.py` (the rules), then `presets.py` (the work)."""
