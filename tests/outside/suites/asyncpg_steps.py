"""asyncpg: connecting, and what an application does first. Prints `step<TAB>ok` or the error."""

import asyncio
import datetime
import decimal
import os

import asyncpg

STEPS = [
    ("select", "SELECT 1 AS a", ()),
    ("create", "CREATE TABLE suite_a (id int PRIMARY KEY, v text, t timestamptz, n numeric(10, 2), b bytea)", ()),
    ("insert", "INSERT INTO suite_a VALUES ($1, $2, $3, $4, $5)",
     (1, "x", datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc), decimal.Decimal("1.50"), b"\0a")),
    ("read", "SELECT * FROM suite_a WHERE id = $1", (1,)),
    ("an array", "SELECT * FROM suite_a WHERE id = ANY($1::int[])", ([1, 2],)),
    ("an array as result", "SELECT ARRAY[1, 2]", ()),
    ("json", "SELECT '{\"a\": 1}'::jsonb", ()),
    ("the schema", "SELECT column_name FROM information_schema.columns WHERE table_name = 'suite_a'", ()),
    ("set_config", "SELECT set_config('my.app', 'x', false), current_setting('my.app')", ()),
    ("drop", "DROP TABLE suite_a", ()),
]


def report(step, error=None):
    text = "ok" if error is None else f"{type(error).__name__}: {error}"
    print(f"{step}\t{text}".replace("\n", " "), flush=True)


async def main():
    try:
        port = int(os.environ["SUITE_PORT"])
        connection = await asyncpg.connect(host="127.0.0.1", port=port, user="holdfast", database="holdfast", timeout=30)
    except Exception as error:
        report("connect", error)
        for step, *_ in STEPS:
            report(step, error)
        return
    report("connect")
    for step, sql, arguments in STEPS:
        try:
            await connection.fetch(sql, *arguments)
            report(step)
        except Exception as error:
            report(step, error)
    for step, action in [("transaction", transaction), ("cursor", cursor), ("copy", copy), ("reset", lambda c: c.reset())]:
        try:
            await action(connection)
            report(step)
        except Exception as error:
            report(step, error)
    await connection.close()


async def transaction(connection):
    async with connection.transaction(isolation="repeatable_read"):
        await connection.execute("CREATE TABLE suite_b (id int PRIMARY KEY)")
        async with connection.transaction():
            await connection.executemany("INSERT INTO suite_b VALUES ($1)", [(n,) for n in range(10)])
    assert await connection.fetchval("SELECT count(*) FROM suite_b") == 10


async def cursor(connection):
    async with connection.transaction():
        rows = [row async for row in connection.cursor("SELECT id FROM suite_b ORDER BY id", prefetch=3)]
    assert len(rows) == 10, rows


async def copy(connection):
    await connection.copy_records_to_table("suite_b", records=[(100,), (101,)])


asyncio.run(main())
