"""The fleets of tests/workers/serving, for the attacks on them."""

from tests.workers.serving.conftest import fleet, hasty_fleet

__all__ = ["fleet", "hasty_fleet"]
