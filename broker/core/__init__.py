"""What the broker decides: standard library only, no I/O, nothing here awaits."""
