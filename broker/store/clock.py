"""What time it is where a key lives: lifetimes are judged by the clock of the server that holds them."""

from broker.store.scripts import Call, script


def clock(key: str) -> Call[int]:
    """Decide to ask for the clock, in ms since 1970, of the server that holds `key`."""
    return Call(script("clock"), (key,), (), int)
