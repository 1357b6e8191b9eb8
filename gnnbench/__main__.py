"""`python -m gnnbench` is `gnnbench`."""

from gnnbench.cli import main

main()
