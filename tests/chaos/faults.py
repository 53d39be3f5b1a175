"""All faults by name."""

from tests.chaos import failovers, networks, processes, servers
from tests.chaos.fault import Fault

FAULTS: dict[str, Fault] = {
    fault.name: fault for fault in (*servers.FAULTS, *networks.FAULTS, *failovers.FAULTS, *processes.FAULTS)
}


def of(shape: str) -> list[Fault]:
    """Return the faults that can be done to a shape."""
    return [fault for fault in FAULTS.values() if shape in fault.shapes]
