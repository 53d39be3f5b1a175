from tests.charts.conftest import helm_binary

__all__ = ["helm_binary"]
