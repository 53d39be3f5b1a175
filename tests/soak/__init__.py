"""Load for long, to see what grows: `make soak`, or `python -m tests.soak --minutes 1` for a short look."""
