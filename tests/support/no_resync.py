"""The broker with its comparison switched off: the negative control of the repair tests.

`python -m tests.support.no_resync serve` is `broker serve`, but a broken log repairs nothing. If a test of a
repair passes with it, that test proves nothing.
"""

import asyncio
import sys
from typing import Any

from broker.__main__ import main
from broker.tailing import resync


async def _compare(self: resync.Resync, tail: Any, why: Any) -> None:
    """Do nothing where the real one compares every watched key."""
    del self, tail, why
    await asyncio.sleep(0)


if __name__ == "__main__":
    resync.Resync._compare = _compare  # pyright: ignore[reportPrivateUsage] - it is what the control removes
    sys.exit(main())
