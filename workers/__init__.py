"""What backend jobs import: publish resources, and serve them; needs neither FastAPI nor uvicorn."""

from broker.core.errors import (
    BadRequest,
    BrokerError,
    Conflict,
    InvalidContents,
    InvalidDeclaration,
    InvalidTemplate,
    InvalidTenant,
    InvalidUri,
    LimitReached,
    Misconfigured,
    NotFound,
    StoreUnavailable,
    TooLarge,
    Unavailable,
    WrongStore,
)
from broker.core.publication import Contents, Json
from broker.core.revision import Stamp
from broker.store.publishing import Outcome
from broker.store.resources import Listed, Stored
from workers.context import Context
from workers.following import Change, Relist
from workers.item import Item, Result
from workers.paths import safe_file, safe_join, safe_open
from workers.publisher import Publisher, SyncPublisher
from workers.resources import Completion, Instance
from workers.serving import serve, serving
from workers.worker import Worker

__all__ = [
    "BadRequest",
    "BrokerError",
    "Change",
    "Completion",
    "Conflict",
    "Contents",
    "Context",
    "Instance",
    "InvalidContents",
    "InvalidDeclaration",
    "InvalidTemplate",
    "InvalidTenant",
    "InvalidUri",
    "Item",
    "Json",
    "LimitReached",
    "Listed",
    "Misconfigured",
    "NotFound",
    "Outcome",
    "Publisher",
    "Relist",
    "Result",
    "Stamp",
    "StoreUnavailable",
    "Stored",
    "SyncPublisher",
    "TooLarge",
    "Unavailable",
    "Worker",
    "WrongStore",
    "safe_file",
    "safe_join",
    "safe_open",
    "serve",
    "serving",
]
