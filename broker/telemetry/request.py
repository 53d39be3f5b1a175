"""The id of the request that is being served: in its events, in its refusals, and in what a proxy logs.

Bound to the request's own task, so whatever is logged on its behalf carries it, and nobody has to hand it on.
"""

import re
import secrets

from broker.telemetry import logging

HEADER = "x-request-id"
_FIT = re.compile(r"[A-Za-z0-9._\-]{8,64}")


def begin(given: str = "") -> str:
    """Begin a request under the id that whoever stands in front gave it, or one of ours; returns the id."""
    name = given if _FIT.fullmatch(given) else secrets.token_hex(8)
    logging.bind(request=name)
    return name


def current() -> str:
    """Return the id of the request of this task, "" outside of one."""
    return str(logging.bound_fields().get("request", ""))
