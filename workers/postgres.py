"""A worker that publishes the rows of a PostgreSQL table and follows it with LISTEN and NOTIFY.

1. A notification only says *which* row changed; the row is read then. So a burst is one read of each row, and
   the payload is a key, never contents (a payload is limited to 8000 bytes).
2. Nothing is notified to who is not connected. So first listen, then look at the whole table; and so again
   after every loss of PostgreSQL or Redis. Publishing what has not changed announces nothing.
3. The worker owns everything of its tenant under its base URI: what is published there without a row is
   removed, also what an earlier run published. One process follows one table.
4. A mistake (no such table) ends a worker that has just begun. Later it is waited for, as an outage is, and
   removes nothing.
5. A row that cannot be published is told once and left out; the others go on.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import dataclass, field
from urllib.parse import quote

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict

from broker.core.errors import BrokerError, InvalidUri, Misconfigured
from broker.core.identity import check_uri
from workers.item import Item
from workers.publisher import Publisher

log = logging.getLogger(__name__)

_FULL_LOOK_SECONDS = 300.0
"""How often the whole table is read though nothing was said: a trigger may be disabled for a while."""
_GATHER_SECONDS = 0.05
"""How long notifications are gathered after the first: a transaction's come one by one."""
_MANY = 1000
"""From how many changed rows on the whole table is read instead."""
_CHUNK = 500
"""How many rows are in memory at a time during a look at the whole table."""
_MAX_PAUSE_SECONDS = 5.0
_CHANNEL_BYTES = 60
"""An identifier has 63 bytes; two are for the suffix of the second trigger."""
_CONNECT_SECONDS = 10
_KEEPALIVE_SECONDS = 15

_TRIGGERS = sql.SQL("""\
CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    before text;
    after text;
BEGIN
    -- TG_ARGV: channel, key column. An empty payload means: look at everything.
    IF TG_LEVEL = 'STATEMENT' THEN
        PERFORM pg_notify(TG_ARGV[0], '');
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        EXECUTE format('SELECT ($1).%I::text', TG_ARGV[1]) INTO before USING OLD;
        PERFORM pg_notify(TG_ARGV[0], CASE WHEN octet_length(before) < 4000 THEN before ELSE '' END);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        EXECUTE format('SELECT ($1).%I::text', TG_ARGV[1]) INTO after USING NEW;
        PERFORM pg_notify(TG_ARGV[0], CASE WHEN octet_length(after) < 4000 THEN after ELSE '' END);
    END IF;
    RETURN NULL;
END
$body$;
DROP TRIGGER IF EXISTS {name} ON {table};
CREATE TRIGGER {name} AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION {name}({channel}, {key});
DROP TRIGGER IF EXISTS {truncated} ON {table};
CREATE TRIGGER {truncated} AFTER TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {name}({channel}, {key});
""")


@dataclass(frozen=True)
class Rows:
    """Which rows are published, and under which URIs.

    `table` may have a schema before a dot. `key` is a column that is unique and never NULL; a row's URI is
    `base` and the key, percent-encoded. Its contents are a JSON object of `columns`, by default of all.
    `base` is by default row://<table>/, `channel` mcp_rows_<table>.

    Raises:
        Misconfigured: the connection string or the channel cannot be one.
        InvalidUri: the base cannot be one.
    """

    dsn: str = field(repr=False)
    """It may hold a password."""
    table: str
    key: str = "id"
    base: str = ""
    columns: tuple[str, ...] | None = None
    channel: str = ""

    def __post_init__(self) -> None:
        try:
            conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError:
            # The driver's sentence may quote the string, which may hold a password.
            raise Misconfigured(
                "The connection string of PostgreSQL cannot be read; it is like "
                "postgresql://user@host/database or like: host=… dbname=… user=…"
            ) from None
        object.__setattr__(self, "base", self.base or f"row://{self.table}/")
        object.__setattr__(self, "channel", self.channel or "mcp_rows_" + self.table.replace(".", "_"))
        if len(self.channel.encode()) > _CHANNEL_BYTES:
            raise Misconfigured(
                f"The channel {self.channel!a} is longer than {_CHANNEL_BYTES} bytes; give a shorter one."
            )
        check_uri(self.base + "x")

    def uri_of(self, key: str) -> str:
        """Return the URI of the row with this key.

        Raises:
            InvalidUri: the key makes none, as when it is too long.
        """
        return check_uri(self.base + quote(key, safe=""))

    def triggers(self) -> sql.Composed:
        """Return the statements that make the table notify its changes; they may be executed again."""
        return _TRIGGERS.format(
            name=sql.Identifier(self.channel),
            truncated=sql.Identifier(self.channel + "_t"),
            table=self._table(),
            channel=sql.Literal(self.channel),
            key=sql.Literal(self.key),
        )

    def listening(self) -> sql.Composed:
        """Return the statement that listens to the channel."""
        return sql.SQL("LISTEN {}").format(sql.Identifier(self.channel))

    def all(self) -> sql.Composed:
        """Return the query for every row: its key and its JSON, both as text."""
        return sql.SQL("SELECT t.{key}::text, {row}::text FROM {table} t WHERE t.{key} IS NOT NULL").format(
            key=sql.Identifier(self.key), row=self._json(), table=self._table()
        )

    def one(self, key: str) -> sql.Composed:
        """Return the query for the row of one key; it can use the key's index."""
        # A literal, not a parameter: it has the column's type, and a name may hold what looks like a
        # parameter's place.
        return self.all() + sql.SQL(" AND t.{} = {}").format(sql.Identifier(self.key), sql.Literal(key))

    def quoted_table(self) -> str:
        """Return the table's name as SQL writes it."""
        return self._table().as_string()

    def _table(self) -> sql.Identifier:
        return sql.Identifier(*self.table.split("."))

    def _json(self) -> sql.Composable:
        if self.columns is None:
            return sql.SQL("row_to_json(t)")
        names = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(name)) for name in self.columns)
        return sql.SQL("(SELECT row_to_json(c) FROM (SELECT {}) c)").format(names)


async def install(rows: Rows) -> None:
    """Make the table notify its changes; doing it again changes nothing.

    Raises:
        Misconfigured: PostgreSQL cannot be reached or refuses it; the sentence says why.
    """
    try:
        async with await _connect(rows) as connection:
            await connection.execute(rows.triggers())
    except psycopg.Error as error:
        raise Misconfigured(f"The triggers cannot be made: {_sentence(rows, error)}") from error


@dataclass
class Change:
    """What one look at the rows led to; `published` counts also what was there already."""

    published: int = 0
    removed: int = 0
    failed: int = 0


@dataclass
class RowsWorker:
    """Keeps what is published equal to the rows of a table."""

    rows: Rows
    publisher: Publisher
    scopes: tuple[str, ...] = ()
    subjects: tuple[str, ...] | None = None
    is_published: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the first look that went through."""

    def __post_init__(self) -> None:
        self._left_out: dict[str, str] = {}
        """What cannot be published, and the sentence that was told."""
        self._failures = 0

    async def run(self) -> None:
        """Publish the rows and follow them until cancelled.

        Raises:
            Misconfigured: PostgreSQL answers, but there are no such rows to publish.
        """
        while True:
            try:
                async with await _connect(self.rows) as listening, await _connect(self.rows) as reading:
                    await self._follow(listening, reading)
            except psycopg.Error as error:
                why = _sentence(self.rows, error)
                if isinstance(error, psycopg.ProgrammingError) and not self.is_published.is_set():
                    raise Misconfigured(why) from error
                self._tell("postgres_lost", why)
            except BrokerError as error:
                if not error.retryable:
                    raise
                self._tell("publishing_failed", str(error))
            self._failures += 1
            pause = min(_MAX_PAUSE_SECONDS, 0.1 * 2 ** min(self._failures, 10))
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    def _tell(self, event: str, why: str) -> None:
        """Tell of an outage once, when it begins."""
        if self._failures == 0:
            log.warning(event, extra={"table": self.rows.table, "why": why})

    async def _follow(self, listening: AsyncConnection, reading: AsyncConnection) -> None:
        """Look at everything and then at what is notified, until something fails."""
        await listening.execute(self.rows.listening())
        await self._look_at_all(reading)
        await self._check_triggers(reading)
        task = asyncio.current_task()
        while True:
            if task is not None and task.cancelling():
                # It came while a command was sent, and the client of Redis lost it (ending.py).
                raise asyncio.CancelledError
            keys = await _notified(listening)
            if not keys or "" in keys or len(keys) > _MANY:
                await self._look_at_all(reading)
            else:
                await self._look_at(reading, keys)

    async def _look_at_all(self, reading: AsyncConnection) -> None:
        change = await self.reconcile(reading)
        if self._failures:
            log.info("publishing_again", extra={"table": self.rows.table})
        self._failures = 0
        if not self.is_published.is_set():
            log.info("rows_published", extra={"table": self.rows.table, "rows": change.published})
        self.is_published.set()

    async def _check_triggers(self, reading: AsyncConnection) -> None:
        """Tell who forgot to install them why changes come late."""
        found = await reading.execute(
            "SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND tgname = %s",
            (self.rows.quoted_table(), self.rows.channel),
        )
        if await found.fetchone() is None:
            why = f"no trigger {self.rows.channel}; install it, or changes are seen at full looks only"
            log.warning("rows_not_notified", extra={"table": self.rows.table, "why": why})

    async def reconcile(self, reading: AsyncConnection) -> Change:
        """Look at the whole table once, and publish and remove what differs.

        Raises:
            psycopg.Error: PostgreSQL fails; nothing is removed.
            BrokerError: Redis cannot be reached; what was done stays done.
        """
        change = Change()
        seen: set[str] = set()
        # Closed at once if publishing fails, not when it is collected: it holds a cursor.
        async with contextlib.aclosing(_chunks(self.rows, reading)) as chunks:
            async for chunk in chunks:
                seen.update(await self._publish(chunk, change))
        for uri in [uri async for uri in self._published() if uri not in seen]:
            await self.publisher.remove(uri)
            change.removed += 1
        return change

    async def _look_at(self, reading: AsyncConnection, keys: Iterable[str]) -> None:
        """Publish the rows of these keys as they are now, and remove those that are gone."""
        change = Change()
        for key in keys:
            found = await (await reading.execute(self.rows.one(key))).fetchall()
            if found:
                await self._publish(found, change)
                continue
            try:
                await self.publisher.remove(self.rows.uri_of(key))
            except InvalidUri:
                # It was never published.
                continue

    async def _publish(self, rows: Iterable[tuple[str, str]], change: Change) -> set[str]:
        """Publish rows and return their URIs, also of those that were refused: they are there."""
        items: list[Item] = []
        for key, contents in rows:
            try:
                uri = self.rows.uri_of(key)
            except InvalidUri as error:
                self._leave_out(key, error, change)
                continue
            items.append(
                Item(
                    uri,
                    contents,
                    name=f"{self.rows.table} {key}",
                    mime_type="application/json",
                    scopes=self.scopes,
                    subjects=self.subjects,
                )
            )
        for result in await self.publisher.publish_many(items):
            if result.error is None:
                self._left_out.pop(result.uri, None)
                change.published += 1
            elif result.error.retryable:
                raise result.error
            else:
                self._leave_out(result.uri, result.error, change)
        return {item.uri for item in items}

    async def _published(self) -> AsyncIterator[str]:
        """Yield what is published under the base."""
        # In the order of their bytes, those that begin with the base follow it at once.
        async for listed in self.publisher.list(after=self.rows.base):
            if not listed.uri.startswith(self.rows.base):
                return
            yield listed.uri

    def _leave_out(self, what: str, error: Exception, change: Change) -> None:
        if self._left_out.get(what) != str(error):
            log.warning("row_left_out", extra={"row": what, "why": str(error)})
        self._left_out[what] = str(error)
        change.failed += 1


async def _connect(rows: Rows) -> AsyncConnection:
    connection = await AsyncConnection.connect(
        rows.dsn,
        autocommit=True,
        connect_timeout=_CONNECT_SECONDS,
        # A listener sends nothing: without these it would not notice a peer that vanished.
        keepalives_idle=_KEEPALIVE_SECONDS,
        keepalives_interval=_KEEPALIVE_SECONDS,
        keepalives_count=2,
    )
    # The JSON of a moment must not depend on a server's or a user's settings, or it would seem to change.
    await connection.execute("SET TIME ZONE 'UTC'")
    return connection


async def _chunks(rows: Rows, reading: AsyncConnection) -> AsyncGenerator[list[tuple[str, str]]]:
    """Yield every row, some at a time, all as of one moment."""
    # A cursor on the server lives in a transaction.
    async with reading.transaction(), reading.cursor(name="mcp_rows") as cursor:
        await cursor.execute(rows.all())
        while chunk := await cursor.fetchmany(_CHUNK):
            yield chunk


async def _notified(listening: AsyncConnection) -> set[str]:
    """Return the keys that were notified; none if there was nothing for long."""
    keys = {each.payload async for each in listening.notifies(timeout=_FULL_LOOK_SECONDS, stop_after=1)}
    if keys:
        keys |= {each.payload async for each in listening.notifies(timeout=_GATHER_SECONDS)}
    return keys


def _sentence(rows: Rows, error: psycopg.Error) -> str:
    """Return what went wrong for who runs the worker, and what to do."""
    why = " ".join(str(error).split())
    if isinstance(error, psycopg.errors.UndefinedTable):
        return (
            f"There is no table {rows.table} in this database: check the name, its schema and the database."
        )
    if isinstance(error, psycopg.errors.UndefinedColumn):
        return f"The table {rows.table} lacks a column that was named: {why}."
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return f"This user of PostgreSQL may not do that with {rows.table}: {why}."
    return f"PostgreSQL cannot be used: {why}"
