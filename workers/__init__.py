"""What backend jobs import: publish resources, and serve them; needs neither FastAPI nor uvicorn."""

from broker.core.errors import (
    BadRequest,
    BrokerError,
    Conflict,
    InvalidContents,
    InvalidTenant,
    InvalidUri,
    LimitReached,
    Misconfigured,
    StoreUnavailable,
    TooLarge,
    Unavailable,
    WrongStore,
)
from broker.core.publication import Contents
from broker.core.revision import Stamp
from broker.store.publishing import Outcome
from broker.store.resources import Listed, Stored
from workers.publisher import Item, Publisher, Result, SyncPublisher

__all__ = [
    "BadRequest",
    "BrokerError",
    "Conflict",
    "Contents",
    "InvalidContents",
    "InvalidTenant",
    "InvalidUri",
    "Item",
    "LimitReached",
    "Listed",
    "Misconfigured",
    "Outcome",
    "Publisher",
    "Result",
    "Stamp",
    "StoreUnavailable",
    "Stored",
    "SyncPublisher",
    "TooLarge",
    "Unavailable",
    "WrongStore",
]
