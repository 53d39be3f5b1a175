"""What a client script may ask of the test that runs it: an HTTP server on a loopback address.

POST /change, /relist and /between/STEP each call a function of the test, in the server's thread, and answer
when it returned.
"""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class Control:
    """Calls `actions[name]` for POST /name, with the rest of the path as its argument."""

    def __init__(self, actions: dict[str, Callable[[str], None]]) -> None:
        self.failures: list[BaseException] = []
        control = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                name, _, rest = self.path.lstrip("/").partition("/")
                status = 200
                try:
                    actions[name](rest)
                except Exception as error:
                    control.failures.append(error)
                    status = 500
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                pass  # the test's own output is enough

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def check(self) -> None:
        """Raise what an action raised."""
        if self.failures:
            raise self.failures[0]
