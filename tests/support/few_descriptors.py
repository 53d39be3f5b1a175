"""`broker` as a process that may open few files: `DESCRIPTORS` of the environment, as in a container."""

import os
import resource
import sys

from broker.__main__ import main

if __name__ == "__main__":
    most = int(os.environ["DESCRIPTORS"])
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sys.exit(main())
