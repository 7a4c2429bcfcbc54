"""The heart of adaptive verification in pure numpy: confidence, its online fit, cost tables, budget, allocation.

Everything here answers for vLLM's numbers: `python -m avbench.adaptive` replays recorded steps, and the tests
compare the replays with what vLLM's own kernels made of the same arrays.
"""
