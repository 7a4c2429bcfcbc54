"""`python -m avbench`."""

from __future__ import annotations

from avbench.cli import main

main()
