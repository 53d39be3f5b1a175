"""What the wire answers instead of a result: an HTTP status and a JSON-RPC error together.

Raised by everything in wire/ that reads, and made by each dialect from the broker's own errors. It knows
no error class: the tables are in modern.py and handshake.py.
"""

from broker.wire import encoding

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
"""The codes of JSON-RPC 2.0 itself, the same in both eras."""

LIMIT_REACHED = -31429
UNAVAILABLE = -31503
"""Ours: a limit was reached; nothing is wrong with the request, send it again.

Outside -32768 to -32000, where new codes do not belong (2026-07-28, "Error Codes"); the last three digits
are those of the HTTP status that means the same.
"""


class Refusal(Exception):
    """A request that is answered with an error. The message is a sentence for a person.

    `id` is the request's id as it will be echoed; None where it could not be known. `headers` go with the
    HTTP answer.
    """

    def __init__(
        self,
        status: int,
        code: int,
        message: str,
        *,
        data: object | None = None,
        id: encoding.RequestId | None = None,  # noqa: A002 - JSON-RPC's own name for it
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.data = data
        self.id = id
        self.headers = headers

    def __repr__(self) -> str:
        return f"<Refusal {self.status} {self.code} {self.message!r}>"

    def body(self) -> bytes:
        """The JSON-RPC error as the whole body of the answer; its id is null only where it is unknown."""
        return encoding.error(self.id, self.code, self.message, self.data)
