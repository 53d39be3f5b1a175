"""Everything the broker refuses or fails at, as one tree.

    BrokerError
    ├── BadRequest              the caller must change the request
    │   ├── InvalidUri
    │   ├── InvalidTenant
    │   ├── InvalidTemplate     a URI template that cannot be matched without a doubt
    │   ├── InvalidDeclaration  a resource function that does not fit its URI
    │   ├── InvalidContents     contents or metadata that cannot be published
    │   ├── InvalidCursor       a resources/list cursor that we did not make
    │   └── TooLarge            over a documented limit
    ├── Unauthenticated         no credential, or one that does not hold
    ├── Forbidden               the credential holds and does not reach so far
    ├── NotFound                unknown, or not yours: deliberately the same
    │   ├── ResourceNotFound
    │   ├── SessionNotFound
    │   └── TenantNotFound      also what a tenant has: its keys
    ├── Conflict                If-Match and its like did not hold
    │   └── KeyReused           an idempotency key used for something else
    ├── LimitReached            a quota or limit; later or smaller may work
    ├── Unavailable             retry: nothing is wrong with the request
    │   ├── StoreUnavailable    Redis is unreachable, loading, full or read-only
    │   ├── NotReplicated       stored, but fewer replicas have confirmed than were asked for
    │   ├── Draining            this replica is leaving; another one answers
    │   ├── Overloaded          this replica has no room for more; another one may have
    │   ├── WorkerUnavailable   no worker that could answer is alive
    │   └── WorkerLate          a worker did not answer in time
    ├── WorkerFailed            a worker's function failed; its log says why
    └── Misconfigured           an operator must act
        └── WrongStore          another schema, shard count or server

`reason` is a metric label and a log field; `retryable` says whether the same request may succeed later.
Codes and statuses belong to the dialects (wire/) and to http/, never to these classes.
"""

from typing import ClassVar

SHOWN = 120
"""How much of a caller's string an error repeats, in characters."""


class BrokerError(Exception):
    """What the broker refuses or fails at; the message is a sentence for a person."""

    reason: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    @property
    def public(self) -> str:
        """What a client is told. The message itself, where it holds nothing of the installation."""
        return str(self)


class BadRequest(BrokerError):
    """The caller must change the request."""

    reason = "bad_request"


class InvalidUri(BadRequest):
    """A string that cannot name a resource."""

    reason = "invalid_uri"

    def __init__(self, uri: str, why: str) -> None:
        shown = ascii(uri if len(uri) <= SHOWN else uri[: SHOWN - 3] + "...")
        super().__init__(f"{shown} is not a resource URI: {why}.")
        self.uri = uri
        self.why = why


class InvalidTenant(BadRequest):
    """A string that cannot name a tenant."""

    reason = "invalid_tenant"


class InvalidTemplate(BadRequest):
    """A URI template that cannot be matched, or only in two ways."""

    reason = "invalid_template"

    def __init__(self, template: str, why: str) -> None:
        shown = ascii(template if len(template) <= SHOWN else template[: SHOWN - 3] + "...")
        super().__init__(f"{shown} is not a URI template that can be served: {why}.")
        self.template = template


class InvalidDeclaration(BadRequest):
    """A function that cannot be served under its URI: its author must change one of them."""

    reason = "invalid_declaration"


class InvalidContents(BadRequest):
    """Contents or metadata that cannot be published."""

    reason = "invalid_contents"


class InvalidCursor(BadRequest):
    """A resources/list cursor that this fleet did not make, or made for another tenant."""

    reason = "invalid_cursor"


class TooLarge(BadRequest):
    """Over a documented size limit."""

    reason = "too_large"


class Unauthenticated(BrokerError):
    """No credential, or one that does not hold (RFC 6750, 3.1).

    `is_presented` says whether there was one; only then the answer names an error.
    """

    reason = "unauthenticated"

    def __init__(self, message: str, *, is_presented: bool = True) -> None:
        super().__init__(message)
        self.is_presented = is_presented


class Forbidden(BrokerError):
    """The credential holds and does not reach so far; `scope` is what it lacks, if that would help."""

    reason = "forbidden"

    def __init__(self, message: str, scope: str | None = None) -> None:
        super().__init__(message)
        self.scope = scope


class NotFound(BrokerError):
    """Unknown, or not yours: deliberately the same (promise 7)."""

    reason = "not_found"


class ResourceNotFound(NotFound):
    """No resource of this tenant that this principal may read has that URI."""

    reason = "resource_not_found"

    def __init__(self, uri: str) -> None:
        super().__init__(f"There is no resource {uri!a}.")
        self.uri = uri


class SessionNotFound(NotFound):
    """The session ended, never was, or belongs to somebody else: start a new one with initialize."""

    reason = "session_not_found"

    def __init__(self) -> None:
        super().__init__("This session has ended or is unknown; start a new one with initialize.")


class TenantNotFound(NotFound):
    """No such tenant, or it has no such thing."""

    reason = "tenant_not_found"


class Conflict(BrokerError):
    """The resource is not at the revision that the caller expected."""

    reason = "conflict"


class KeyReused(Conflict):
    """This idempotency key was used for something else before: a new request needs a new key."""

    reason = "key_reused"


class LimitReached(BrokerError):
    """A quota or limit was reached; `retry_after` is when trying again makes sense, in seconds, if known.

    `limit` is its name where it is one of core/tenancy.py's.
    """

    reason = "limit"

    def __init__(self, message: str, retry_after: float | None = None, limit: str = "") -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.limit = limit


class Unavailable(BrokerError):
    """Nothing is wrong with the request: send it again."""

    reason = "unavailable"
    retryable = True


class StoreUnavailable(Unavailable):
    """Redis is unreachable, loading, full or read-only. The message, with addresses, is the operator's."""

    reason = "store_unavailable"

    @property
    def public(self) -> str:
        return "The broker's store does not answer now; the request was right, so send it again shortly."


class NotReplicated(Unavailable):
    """It is stored and announced, and fewer replicas than were asked for have confirmed it in time."""

    reason = "not_replicated"

    def __init__(self, replicas: int, wanted: int) -> None:
        super().__init__(
            f"Stored, but only on {replicas} of {wanted} replicas within the time given; "
            "send the same again to wait for the others."
        )
        self.replicas = replicas
        self.wanted = wanted


class Draining(Unavailable):
    """This replica is leaving; another one answers."""

    reason = "draining"


class Overloaded(Unavailable):
    """This replica has no room for another stream or session; another one may have."""

    reason = "overloaded"

    def __init__(self) -> None:
        super().__init__("This replica has no room for more now; open it again shortly, on another one.")


class WorkerUnavailable(Unavailable):
    """No worker that could answer is alive."""

    reason = "worker_unavailable"

    def __init__(self) -> None:
        super().__init__("No worker that answers for this resource is running now; try again shortly.")


class WorkerLate(Unavailable):
    """A worker did not answer in time."""

    reason = "worker_late"


class WorkerFailed(BrokerError):
    """A worker's function failed; the operator finds its traceback by the id."""

    reason = "worker_failed"

    def __init__(self, call: str) -> None:
        super().__init__(
            f"Internal error: the function behind this resource failed; its log says why ({call})."
        )
        self.call = call


class Misconfigured(BrokerError):
    """An operator must act. The message, with names of keys and settings, is the operator's."""

    reason = "misconfigured"

    @property
    def public(self) -> str:
        return "The broker's store needs its operator; see its log."


class WrongStore(Misconfigured):
    """Redis holds another schema or shard count, or is a server that we cannot use."""

    reason = "wrong_store"
