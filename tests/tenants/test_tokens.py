"""Access tokens: which hold, which do not, and what an issuer's outage or rotation does."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from broker.core.errors import Unauthenticated, Unavailable
from broker.http.auth import jwks
from broker.http.auth.challenge import Challenge
from broker.http.auth.tokens import TokenAuth
from broker.settings import OAuthSettings
from tests.support.wait import until
from tests.tenants.issuer import RESOURCE, Issuer, SigningKey, forged


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


def auth_of(*issuers: dict[str, Any], **settings: Any) -> TokenAuth:
    oauth = OAuthSettings.model_validate({"resource": RESOURCE, "issuers": issuers, **settings})
    return TokenAuth(oauth, Challenge(RESOURCE, [one["issuer"] for one in issuers]))


@pytest.fixture
def auth(issuer: Issuer) -> TokenAuth:
    return auth_of(issuer.settings(tenant_claim="org"))


async def test_a_token_gives_tenant_subject_scopes_and_end(issuer: Issuer, auth: TokenAuth) -> None:
    claims = issuer.claims()
    who = await auth.authenticate(issuer.token(exp=claims["exp"]))
    assert (who.tenant, who.subject, who.expires) == ("acme", f"{issuer.name}#alice", claims["exp"])
    assert who.scopes == {"resources:read", "resources:publish"}


@pytest.mark.parametrize(
    "algorithm", ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"]
)
async def test_every_asymmetric_algorithm_holds(issuer: Issuer, auth: TokenAuth, algorithm: str) -> None:
    issuer.keys = [SigningKey(algorithm)]
    assert (await auth.authenticate(issuer.token())).tenant == "acme"


REFUSED: dict[str, dict[str, Any]] = {
    "expired": {"exp": int(time.time()) - 3600},
    "without an end": {"exp": None},
    "with an end that is text": {"exp": "tomorrow"},
    "with an end that is true": {"exp": True},
    "not valid yet": {"nbf": int(time.time()) + 3600},
    "issued tomorrow": {"iat": int(time.time()) + 86_400},
    "for the origin only": {"aud": "https://mcp.example.org"},
    "for a path that goes on": {"aud": RESOURCE + "2"},
    "for a host that goes on": {"aud": "https://mcp.example.org.evil/mcp"},
    "for another case": {"aud": RESOURCE.upper()},
    "for two slashes": {"aud": RESOURCE + "//"},
    "for nobody": {"aud": None},
    "for an empty list": {"aud": []},
    "for an object": {"aud": {"a": RESOURCE}},
    "for another tenant's address": {"aud": "https://mcp.example.org/t/other/mcp"},
    "of a stranger": {"iss": "https://evil.example"},
    "of an issuer with a slash": {"iss": "http://127.0.0.1/"},
    "of a list of issuers": {"iss": ["http://127.0.0.1"]},
    "of nobody": {"sub": None},
    "of an empty subject": {"sub": ""},
    "of a long subject": {"sub": "a" * 300},
    "of a subject with a line break": {"sub": "a\nb"},
    "without a tenant": {"org": None},
    "of a tenant that is a number": {"org": 7},
    "of a tenant that is a list": {"org": ["acme"]},
    "of an empty tenant": {"org": ""},
    "of a long tenant": {"org": "a" * 65},
    "of a tenant with a NUL": {"org": "acme\0"},
}


@pytest.mark.parametrize("claims", REFUSED.values(), ids=REFUSED)
async def test_a_token_is_refused_that_is(issuer: Issuer, auth: TokenAuth, claims: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        await auth.authenticate(issuer.token(**claims))


@pytest.mark.parametrize(
    "audience",
    [RESOURCE, RESOURCE + "/", ["x", RESOURCE], "https://mcp.example.org/t/acme/mcp", "also"],
    ids=str,
)
async def test_the_resource_is_the_audience_with_one_slash_or_without(issuer: Issuer, audience: Any) -> None:
    auth = auth_of(issuer.settings(tenant_claim="org"), audiences="also")
    assert (await auth.authenticate(issuer.token(aud=audience))).tenant == "acme"


async def test_clocks_may_differ_by_the_leeway_and_not_by_more(issuer: Issuer) -> None:
    auth = auth_of(issuer.settings(tenant="acme"), leeway_seconds=30)
    now = int(time.time())
    await auth.authenticate(issuer.token(exp=now - 20))
    await auth.authenticate(issuer.token(nbf=now + 20, iat=now + 20))
    for claims in ({"exp": now - 31}, {"nbf": now + 40}):
        with pytest.raises(Unauthenticated):
            await auth.authenticate(issuer.token(None, None, **claims))


# -- forgeries ---------------------------------------------------------------------------------------------


async def test_a_token_signed_with_nothing_is_refused(issuer: Issuer, auth: TokenAuth) -> None:
    for none in ("none", "None", "NONE", "nOnE", ""):
        for kid in ({"kid": issuer.keys[0].kid}, {}):
            with pytest.raises(Unauthenticated):
                await auth.authenticate(forged({"alg": none} | kid, issuer.claims()))


async def test_a_public_key_is_never_taken_for_a_shared_secret(issuer: Issuer, auth: TokenAuth) -> None:
    issuer.keys = [SigningKey("RS256")]
    key = issuer.keys[0]
    public = json.dumps({name: key.jwk[name] for name in ("kty", "n", "e")}).encode()
    header = {"alg": "HS256", "kid": key.kid}
    unsigned = forged(header, issuer.claims()).rpartition(".")[0]
    signature = hmac.new(public, unsigned.encode(), hashlib.sha256).digest()
    with pytest.raises(Unauthenticated):
        await auth.authenticate(forged(header, issuer.claims(), signature))


async def test_a_key_is_for_one_algorithm_whatever_the_header_says(issuer: Issuer, auth: TokenAuth) -> None:
    key = SigningKey("RS256")
    issuer.keys = [key]
    other = SigningKey("RS256")
    other.private, other.kid, other.algorithm = key.private, key.kid, "PS256"
    await auth.authenticate(issuer.token(key))
    with pytest.raises(Unauthenticated, match="InvalidAlgorithm"):
        await auth.authenticate(issuer.token(other))


@pytest.mark.parametrize(
    "jwk",
    [
        {"use": "enc"},
        {"key_ops": ["encrypt"]},
        {"alg": "HS256"},
        {"alg": "RSA-OAEP"},
        {"alg": "none"},
        {"kty": "oct"},
    ],
    ids=str,
)
async def test_keys_that_are_not_for_signatures_are_passed_over(issuer: Issuer, jwk: dict[str, Any]) -> None:
    issuer.keys = [SigningKey("RS256", **jwk)]
    auth = auth_of(issuer.settings(tenant="acme"))
    with pytest.raises(Unauthenticated):
        await auth.authenticate(issuer.token())


async def test_a_key_that_a_token_brings_along_is_not_believed(issuer: Issuer, auth: TokenAuth) -> None:
    evil = SigningKey("ES256", kid=issuer.keys[0].kid)
    header = {"jwk": evil.jwk, "jku": "http://127.0.0.1:1/jwks", "x5u": "http://127.0.0.1:1/x"}
    with pytest.raises(Unauthenticated, match="signature"):
        await auth.authenticate(issuer.token(evil, header))


async def test_the_key_of_one_issuer_signs_nothing_for_another(issuer: Issuer) -> None:
    with Issuer() as other:
        auth = auth_of(issuer.settings(tenant="acme"), other.settings(tenant="other"))
        assert (await auth.authenticate(other.token())).tenant == "other"
        with pytest.raises(Unauthenticated):
            await auth.authenticate(issuer.token(other.keys[0]))
        # Not even under the same id.
        other.keys[0].kid = issuer.keys[0].kid
        with pytest.raises(Unauthenticated):
            await auth.authenticate(issuer.token(other.keys[0]))


async def test_the_same_subject_of_two_issuers_is_two_callers(issuer: Issuer) -> None:
    with Issuer() as other:
        auth = auth_of(issuer.settings(tenant="acme"), other.settings(tenant="acme"))
        one, two = await auth.authenticate(issuer.token()), await auth.authenticate(other.token())
        assert (one.tenant, one.subject != two.subject) == (two.tenant, True)


@pytest.mark.parametrize("kind", ["id_token", "logout+jwt", "dpop+jwt", "JWE"])
async def test_a_token_for_another_purpose_is_no_access_token(
    issuer: Issuer, auth: TokenAuth, kind: str
) -> None:
    with pytest.raises(Unauthenticated, match="type"):
        await auth.authenticate(issuer.token(header={"typ": kind}))


@pytest.mark.parametrize(
    "token",
    ["a.b.c", "..", "a.b", ".", "a" * 8000, "eyJ9.eyJ9.x", "a.b.c.d.e", "ä.b.c".encode().hex(), "é"],
    ids=lambda text: text[:12],
)
async def test_what_is_no_token_is_refused_and_no_error(auth: TokenAuth, token: str) -> None:
    with pytest.raises(Unauthenticated):
        await auth.authenticate(token)


async def test_a_critical_extension_that_we_do_not_know_is_refused(issuer: Issuer, auth: TokenAuth) -> None:
    with pytest.raises(Unauthenticated):
        await auth.authenticate(issuer.token(header={"crit": ["exp"], "exp": 1}))


async def test_an_oversized_token_is_refused_before_it_is_read(issuer: Issuer, auth: TokenAuth) -> None:
    with pytest.raises(Unauthenticated, match="8192"):
        await auth.authenticate(issuer.token(pad="x" * 9000))
    assert not issuer.asked


async def test_a_changed_byte_anywhere_is_refused(issuer: Issuer, auth: TokenAuth) -> None:
    token = issuer.token()
    await auth.authenticate(token)
    for at in range(0, len(token), 7):
        if token[at] == ".":
            continue
        bent = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        with pytest.raises(Unauthenticated):
            await auth.authenticate(bent)


# -- the issuer's keys -------------------------------------------------------------------------------------


async def test_keys_are_found_by_the_issuers_metadata_and_fetched_once_for_many_tokens(
    issuer: Issuer,
) -> None:
    auth = auth_of({"issuer": issuer.name, "tenant": "acme"})
    await asyncio.gather(*(auth.authenticate(issuer.token(sub=f"s{n}")) for n in range(20)))
    assert issuer.asked["/jwks"] == 1


async def test_metadata_that_is_another_issuers_names_no_keys(issuer: Issuer) -> None:
    issuer.metadata = {"issuer": "https://evil.example"}
    auth = auth_of({"issuer": issuer.name, "tenant": "acme"})
    with pytest.raises(Unavailable):
        await auth.authenticate(issuer.token())
    assert issuer.asked["/jwks"] == 0


async def test_a_redirect_to_keys_is_not_followed(issuer: Issuer) -> None:
    auth = auth_of(issuer.settings(tenant="acme") | {"jwks_url": f"{issuer.name}/moved"})
    with pytest.raises(Unavailable):
        await auth.authenticate(issuer.token())
    assert issuer.asked["/jwks"] == 0


async def test_a_new_key_is_known_as_soon_as_a_token_of_it_comes(
    issuer: Issuer, auth: TokenAuth, monkeypatch: pytest.MonkeyPatch
) -> None:
    await auth.authenticate(issuer.token())
    monkeypatch.setattr(jwks, "COOLDOWN", 0.0)
    issuer.keys.append(SigningKey("EdDSA"))
    await auth.authenticate(issuer.token(issuer.keys[1]))
    await auth.authenticate(issuer.token(issuer.keys[0], sub="bob"))


async def test_unknown_keys_do_not_make_us_hammer_the_issuer(issuer: Issuer, auth: TokenAuth) -> None:
    await auth.authenticate(issuer.token())
    for _ in range(50):
        with pytest.raises(Unauthenticated):
            await auth.authenticate(issuer.token(SigningKey("ES256")))
    assert issuer.asked["/jwks"] <= 2


async def test_an_issuer_that_is_down_costs_nothing_while_its_keys_are_known(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = auth_of(issuer.settings(tenant="acme"), jwks_seconds=1)
    await auth.authenticate(issuer.token())
    issuer.is_down = True
    monkeypatch.setattr(jwks, "COOLDOWN", 0.0)
    keys = vars(auth)["_keys"][issuer.name]
    monkeypatch.setattr(keys, "_refresh", 0.0)
    for number in range(5):
        await auth.authenticate(issuer.token(sub=f"s{number}"))
    await until(lambda: issuer.asked["/jwks"] > 1, "keys to be asked for again")
    issuer.is_down = False


async def test_an_issuer_that_was_never_reached_is_unavailable_and_no_refusal(
    issuer: Issuer, auth: TokenAuth, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.is_down = True
    with pytest.raises(Unavailable):
        await auth.authenticate(issuer.token())
    issuer.is_down = False
    monkeypatch.setattr(jwks, "COOLDOWN", 0.0)
    await auth.authenticate(issuer.token())


async def test_a_withdrawn_key_holds_no_longer_even_for_a_token_that_was_seen(
    issuer: Issuer, auth: TokenAuth, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = issuer.token()
    await auth.authenticate(token)
    issuer.keys = [SigningKey("ES256")]
    monkeypatch.setattr(jwks, "COOLDOWN", 0.0)
    await auth.authenticate(issuer.token(sub="bob"))
    with pytest.raises(Unauthenticated):
        await auth.authenticate(token)


# -- opaque tokens -----------------------------------------------------------------------------------------


@pytest.fixture
def opaque(issuer: Issuer) -> TokenAuth:
    return auth_of(
        {
            "issuer": issuer.name,
            "tenant_claim": "org",
            "introspection_url": f"{issuer.name}/introspect",
            "client_id": "broker",
            "client_secret": "s/ecret",
        },
        introspection_seconds=1,
    )


async def test_an_opaque_token_is_asked_about_once_a_while(issuer: Issuer, opaque: TokenAuth) -> None:
    issuer.opaque["t0k"] = issuer.claims(active=True, iss=None)
    for _ in range(10):
        assert (await opaque.authenticate("t0k")).tenant == "acme"
    assert issuer.asked["/introspect"] == 1
    issuer.opaque.clear()

    async def is_refused() -> bool:
        try:
            await opaque.authenticate("t0k")
        except Unauthenticated:
            return True
        return False

    await until(is_refused, "the revoked token to be refused", 3)


@pytest.mark.parametrize(
    "said",
    [{"active": False}, {"active": "true"}, {}, {"active": True, "aud": "https://other.example"}],
    ids=str,
)
async def test_an_opaque_token_that_does_not_hold(issuer: Issuer, opaque: TokenAuth, said: Any) -> None:
    issuer.opaque["t0k"] = issuer.claims(**said) if said.get("active") is True else said
    with pytest.raises(Unauthenticated):
        await opaque.authenticate("t0k")


async def test_an_introspection_that_is_down_is_unavailable(issuer: Issuer, opaque: TokenAuth) -> None:
    issuer.is_down = True
    with pytest.raises(Unavailable):
        await opaque.authenticate("t0k")


async def test_a_stream_of_an_opaque_token_is_bounded(issuer: Issuer, opaque: TokenAuth) -> None:
    issuer.opaque["t0k"] = issuer.claims(active=True, exp=int(time.time()) + 86_400)
    expires = (await opaque.authenticate("t0k")).expires
    assert expires is not None
    assert expires <= time.time() + 300
