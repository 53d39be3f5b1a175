"""An authorization server for tests: it signs tokens, serves its keys, knows opaque ones, and can be down."""

import base64
import json
import secrets
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

RESOURCE = "https://mcp.example.org/mcp"


class SigningKey:
    """A private key with its id and its public half as a JWK."""

    def __init__(self, algorithm: str, kid: str | None = None, **jwk: Any) -> None:
        self.algorithm = algorithm
        self.kid = kid or secrets.token_hex(4)
        self.private: Any
        if algorithm.startswith(("RS", "PS")):
            self.private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            public = json.loads(RSAAlgorithm.to_jwk(self.private.public_key()))
        elif algorithm.startswith("ES"):
            curve = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}[algorithm]
            self.private = ec.generate_private_key(curve)
            public = json.loads(ECAlgorithm.to_jwk(self.private.public_key()))
        else:
            self.private = ed25519.Ed25519PrivateKey.generate()
            public = json.loads(OKPAlgorithm.to_jwk(self.private.public_key()))
        self.jwk = public | {"kid": self.kid, "use": "sig", "alg": algorithm} | jwk


class Issuer:
    """The server; its name is its address."""

    def __init__(self) -> None:
        self.keys = [SigningKey("ES256")]
        self.is_down = False
        self.asked: Counter[str] = Counter()
        self.opaque: dict[str, dict[str, Any]] = {}
        self.metadata: dict[str, Any] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked[self.path] += 1
                if issuer.is_down:
                    self.send_error(503)
                elif self.path == "/jwks":
                    self.answer({"keys": [key.jwk for key in issuer.keys]})
                elif self.path == "/.well-known/oauth-authorization-server":
                    self.answer({"issuer": issuer.name, "jwks_uri": f"{issuer.name}/jwks"} | issuer.metadata)
                elif self.path == "/moved":
                    self.send_response(302)
                    self.send_header("location", "/jwks")
                    self.send_header("content-length", "0")
                    self.end_headers()
                else:
                    self.send_error(404)

            def do_POST(self) -> None:
                issuer.asked[self.path] += 1
                body = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
                expected = "Basic " + base64.b64encode(b"broker:s%2Fecret").decode()
                if issuer.is_down or self.headers["authorization"] != expected:
                    self.send_error(503)
                else:
                    self.answer(issuer.opaque.get(body["token"][0], {"active": False}))

            def answer(self, document: Any) -> None:
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 # the base class names it

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def name(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def settings(self, **more: Any) -> dict[str, Any]:
        return {"issuer": self.name, "jwks_url": f"{self.name}/jwks", **more}

    def claims(self, **claims: Any) -> dict[str, Any]:
        """Return claims that are all right, with `claims` instead; None leaves one out."""
        now = int(time.time())
        whole = {
            "iss": self.name,
            "sub": "alice",
            "aud": RESOURCE,
            "org": "acme",
            "scope": "resources:read resources:publish",
            "iat": now,
            "exp": now + 600,
            **claims,
        }
        return {name: value for name, value in whole.items() if value is not None}

    def token(
        self, key: SigningKey | None = None, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        key = key or self.keys[0]
        headers = {"kid": key.kid, "typ": "at+jwt"} | (header or {})
        payload = json.dumps(self.claims(**claims)).encode()
        # Not by the library's JWT layer, which refuses to sign some of the nonsense that tests need.
        return jwt.PyJWS().encode(payload, key.private, key.algorithm, headers=headers)


def forged(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """Return a token put together by hand."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    return ".".join([part(json.dumps(header).encode()), part(json.dumps(claims).encode()), part(signature)])
