"""avbench: which speculative-decoding setting is best for this model pair, traffic and load, and how sure are we."""

__version__ = "0.1.0"
