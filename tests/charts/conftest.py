import pytest

from tests.charts.install import install, why_not


@pytest.fixture(scope="session")
def helm_binary() -> None:
    """Have helm, or skip with the reason why this machine cannot run it."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    install()
