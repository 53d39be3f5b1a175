"""Tokens, keys and answers of authorization servers that were made to hurt: refused, and bounded."""

import asyncio
import base64
import json
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest

from broker.core.errors import Unauthenticated, Unavailable
from broker.http.auth import fetch
from broker.http.auth.challenge import Challenge
from broker.http.auth.tokens import TokenAuth
from broker.settings import Issuer as Trusted
from broker.settings import OAuthSettings
from tests.tenants.issuer import RESOURCE, Issuer, SigningKey, forged


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


def auth_of(*issuers: dict[str, Any], **settings: Any) -> TokenAuth:
    given = tuple(Trusted(**one) for one in issuers)
    return TokenAuth(OAuthSettings(resource=RESOURCE, issuers=given, **settings), Challenge(RESOURCE))


@pytest.fixture
def auth(issuer: Issuer) -> TokenAuth:
    return auth_of(issuer.settings(tenant_claim="org"))


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "NONE", "nOnE", "", "HS256", "RS256", "ES384", "ES256K"]
)
async def test_an_algorithm_that_is_not_the_keys_is_refused_however_it_is_written(
    issuer: Issuer, auth: TokenAuth, algorithm: str
) -> None:
    header = {"alg": algorithm, "kid": issuer.keys[0].kid, "typ": "at+jwt"}
    for signature in (b"", b"\0" * 64, b"\0" * 256):
        with pytest.raises(Unauthenticated):
            await auth.authenticate(forged(header, issuer.claims(), signature))


@pytest.mark.parametrize(
    "kid",
    [
        "../../../../etc/passwd",
        "/dev/null",
        "file:///etc/passwd",
        "https://evil.example/jwks",
        "' OR 1=1 --",
        "\0",
        "x" * 4000,
        "",
        7,
        ["a"],
        {"a": 1},
    ],
    ids=lambda kid: str(kid)[:20].replace("\0", "NUL"),
)
async def test_a_key_id_is_a_name_and_nothing_that_is_opened(
    issuer: Issuer, auth: TokenAuth, kid: Any
) -> None:
    with pytest.raises(Unauthenticated):
        await auth.authenticate(forged({"alg": "ES256", "kid": kid}, issuer.claims(), b"\0" * 64))
    assert set(issuer.asked) <= {"/jwks", "/.well-known/oauth-authorization-server"}
    assert (await auth.authenticate(issuer.token())).subject.endswith("#alice")


@pytest.mark.parametrize("member", ["jku", "x5u", "jwk", "x5c"])
async def test_a_signature_by_a_key_that_came_along_is_refused_and_nothing_is_fetched(
    issuer: Issuer, auth: TokenAuth, member: str
) -> None:
    own = SigningKey("ES256", kid=issuer.keys[0].kid)
    value: Any = {"jku": f"{issuer.name}/evil", "x5u": f"{issuer.name}/evil", "jwk": own.jwk, "x5c": ["AA=="]}
    with pytest.raises(Unauthenticated):
        await auth.authenticate(issuer.token(own, {member: value[member]}))
    assert issuer.asked["/evil"] == 0


@pytest.mark.parametrize(
    "header", [{"b64": False, "crit": ["b64"]}, {"zip": "DEF"}, {"crit": []}, {"crit": "exp"}], ids=str
)
async def test_what_changes_how_a_token_is_read_is_refused_or_means_nothing(
    issuer: Issuer, auth: TokenAuth, header: dict[str, Any]
) -> None:
    try:
        principal = await auth.authenticate(issuer.token(None, header))
    except Unauthenticated:
        return
    assert "crit" not in header
    assert principal.tenant == "acme"


def _segment(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def test_of_doubled_claims_one_is_believed_by_who_looks_up_and_by_who_verifies(issuer: Issuer) -> None:
    """Two parsers that disagree about "org" would let the issuer's check and ours see two tenants."""
    key = issuer.keys[0]
    claims = json.dumps(issuer.claims())[:-1] + ', "org": "victim", "org": "acme"}'
    token = jwt.PyJWS().encode(claims.encode(), key.private, key.algorithm, headers={"kid": key.kid})
    principal = asyncio.run(auth_of(issuer.settings(tenant_claim="org")).authenticate(token))
    assert principal.tenant == "acme"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        '{"a":' * 1500 + "1" + "}" * 1500,
        '{"iss":"' + "x" * 5000 + '"}',
        '{"exp":1e999}',
        '{"exp":' + "9" * 5000 + "}",
        "\ud7ff",
        "null",
    ],
    ids=["brackets", "deep", "long", "infinite", "digits", "text", "null"],
)
async def test_segments_that_are_deep_long_or_no_object_are_refused_at_once(
    auth: TokenAuth, text: str
) -> None:
    began = time.perf_counter()
    for token in (
        f"{_segment(text)}.e30.AA",
        f"e30.{_segment(text)}.AA",
        f"{_segment(text)}.{_segment(text)}.",
    ):
        with pytest.raises(Unauthenticated):
            await auth.authenticate(token[:8000])
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    "claims",
    [
        {"org": ["acme"]},
        {"org": {"acme": 1}},
        {"org": "acme\0"},
        {"org": "x" * 500},
        {"org": ""},
        {"org": True},
        {"sub": "a\nb"},
        {"sub": "x" * 300},
        {"sub": ""},
        {"sub": ["alice"]},
        {"aud": {RESOURCE: 1}},
        {"aud": [[RESOURCE]]},
        {"aud": RESOURCE + "/../mcp"},
        {"exp": "9999999999"},
        {"exp": True},
        {"nbf": [0]},
    ],
    ids=str,
)
async def test_a_claim_of_another_type_or_out_of_bounds_is_refused(
    issuer: Issuer, auth: TokenAuth, claims: dict[str, Any]
) -> None:
    with pytest.raises(Unauthenticated):
        await auth.authenticate(issuer.token(None, None, **claims))


async def test_scopes_are_words_and_only_so_many_of_them_are_looked_at(
    issuer: Issuer, auth: TokenAuth
) -> None:
    many = " ".join(["x"] * 250 + ["admin"])
    assert (await auth.authenticate(issuer.token(scope=many))).scopes == {"x"}
    for bent in (
        "resources:readadmin",
        "RESOURCES:READ",
        "resources:read,admin",
        "resources:read\u00a0admin",
    ):
        granted = (await auth.authenticate(issuer.token(scope=bent))).scopes or frozenset()
        assert granted.isdisjoint({"resources:read", "admin"})


# -- what an authorization server may answer -----------------------------------------------------------------


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Generator[str]:
    """Answer everything alike; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                return

        do_POST = do_GET  # noqa: N815 # the base class names it

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 # the base class names it

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


ANSWERS: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "too large": (200, b'{"keys":[' + b" " * (fetch.MAX_BYTES + 10) + b"]}", {}),
    "a redirect to a file": (302, b"", {"location": "file:///etc/passwd"}),
    "a redirect inside": (307, b"", {"location": "http://169.254.169.254/latest/meta-data"}),
    "no object": (200, b"[]", {}),
    "deep": (200, b"[" * 100_000, {}),
    "no JSON": (200, b"<html>", {}),
    "compressed": (200, b"\x1f\x8b\x08", {"content-encoding": "gzip"}),
    "an error": (500, b"{}", {}),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_that_is_none_is_an_outage_for_keys_and_for_introspection(
    issuer: Issuer, name: str
) -> None:
    status, body, headers = ANSWERS[name]
    with answering(status, body, **headers) as url:
        by_keys = auth_of({"issuer": issuer.name, "jwks_url": f"{url}/jwks", "tenant_claim": "org"})
        with pytest.raises(Unavailable):
            await by_keys.authenticate(issuer.token())
        asked = {"introspection_url": f"{url}/i", "client_id": "broker", "client_secret": "s/ecret"}
        by_asking = auth_of({"issuer": issuer.name, "tenant_claim": "org", **asked})
        with pytest.raises(Unavailable):
            await by_asking.authenticate("opaque")


@pytest.mark.parametrize(
    "where",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://localhost.evil.example/jwks",
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "data:application/json,{}",
        "gopher://127.0.0.1:6379/_FLUSHALL",
        "//evil.example/jwks",
        "",
        7,
    ],
    ids=str,
)
async def test_metadata_sends_us_nowhere_that_is_not_https_or_the_issuers_own(
    issuer: Issuer, where: Any
) -> None:
    issuer.metadata = {"jwks_uri": where}
    with pytest.raises(Unavailable):
        await auth_of({"issuer": issuer.name, "tenant_claim": "org"}).authenticate(issuer.token())
