"""The worker of a chaos run: it answers with what stands in a file, which the run changes and touches."""

import os
from pathlib import Path

from workers.worker import Worker

worker = Worker("chaos")

URI = "live://file"


@worker.resource(URI)
def read() -> str:
    return Path(os.environ["CHAOS_FILE"]).read_text()
