"""A collector for the replicas' traces."""

from collections.abc import Iterator

import pytest

from tests.telemetry.collector import Collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()
