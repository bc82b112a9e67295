"""No update is lost: counters under concurrent increments, a bank, and unique values that change places.

Every increment that was acknowledged must be in the sum, and nothing else; how many there were differs from run to
run and is no finding. A transaction is run again only after an error that it may meet: where everybody takes rows in
the same order there is no deadlock.
"""

import random
import time

import psycopg

from crowd import DEADLOCK, SERIALIZATION, Crowd
from findings import add, connect, set_up

COUNTERS = 3
ACCOUNTS = 12
BALANCE = 1000
PLACES = 6


def increments(database: str) -> str:
    """Sixteen threads add 1 in four ways to few rows."""
    set_up(database, "CREATE TABLE c (id int PRIMARY KEY, v int NOT NULL)")
    with connect(database) as connection:
        connection.execute(f"INSERT INTO c SELECT g, 0 FROM generate_series(1, {COUNTERS}) AS g")
    crowd = Crowd(database)
    acknowledged = [0] * (COUNTERS + 1)

    def count(row: int, by: int = 1) -> None:
        with crowd.lock:
            acknowledged[row] += by

    def autocommit(connection: psycopg.Connection, _: int) -> None:
        row = random.randint(1, COUNTERS)
        crowd.retrying(connection, lambda: connection.execute("UPDATE c SET v = v + 1 WHERE id = %s", (row,)))
        count(row)

    def locked(connection: psycopg.Connection, _: int) -> None:
        row = random.randint(1, COUNTERS)

        def transaction() -> None:
            connection.execute("BEGIN")
            value = connection.execute("SELECT v FROM c WHERE id = %s FOR UPDATE", (row,)).fetchone()[0]
            connection.execute("UPDATE c SET v = %s WHERE id = %s", (value + 1, row))
            connection.execute("COMMIT")

        crowd.retrying(connection, transaction)
        count(row)

    def plain(connection: psycopg.Connection, _: int) -> None:
        """Two rows, with a pause in which others come to wait."""
        rows = sorted(random.sample(range(1, COUNTERS + 1), 2))

        def transaction() -> None:
            connection.execute("BEGIN")
            for row in rows:
                connection.execute("UPDATE c SET v = v + 1 WHERE id = %s", (row,))
                time.sleep(0.002)
            connection.execute("COMMIT")

        crowd.retrying(connection, transaction)
        for row in rows:
            count(row)

    def repeatable(connection: psycopg.Connection, _: int) -> None:
        """Reads without a lock and writes what it has computed: only the level keeps it from losing updates."""
        row = random.randint(1, COUNTERS)

        def transaction() -> None:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            value = connection.execute("SELECT v FROM c WHERE id = %s", (row,)).fetchone()[0]
            connection.execute("UPDATE c SET v = %s WHERE id = %s", (value + 1, row))
            connection.execute("COMMIT")

        crowd.retrying(connection, transaction, SERIALIZATION)
        count(row)

    crowd.add(autocommit, 8)
    crowd.add(locked, 4)
    crowd.add(plain, 2)
    crowd.add(repeatable, 2)
    errors = crowd.run()
    with connect(database) as connection:
        rows = [value for (value,) in connection.execute("SELECT v FROM c ORDER BY id")]
    wrong = "" if rows == acknowledged[1:] else f": acknowledged {acknowledged[1:]}, in the rows {rows}"
    some = "some" if sum(acknowledged) >= 16 else "too few"
    return f"{some} increments, every one counted: {not wrong}{wrong}; errors {errors}"


def bank(database: str) -> str:
    """Transfers in every way a program writes them; the sum is the same in every snapshot a reader takes."""
    set_up(database, "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL CHECK (balance >= 0))")
    with connect(database) as connection:
        connection.execute(f"INSERT INTO account SELECT g, {BALANCE} FROM generate_series(1, {ACCOUNTS}) AS g")
    crowd = Crowd(database)
    wrong: set[str] = set()

    def move(connection: psycopg.Connection, source: int, target: int, amount: int) -> None:
        connection.execute("UPDATE account SET balance = balance - %s WHERE id = %s", (amount, source))
        connection.execute("UPDATE account SET balance = balance + %s WHERE id = %s", (amount, target))

    def transfer(connection: psycopg.Connection, number: int) -> None:
        source, target = random.sample(range(1, ACCOUNTS + 1), 2)
        amount = random.randint(1, 50)
        level = ("READ COMMITTED", "REPEATABLE READ")[number % 2]

        def transaction() -> None:
            connection.execute(f"BEGIN ISOLATION LEVEL {level}")
            move(connection, source, target, amount)
            connection.execute("COMMIT")

        serialization = (SERIALIZATION,) if level == "REPEATABLE READ" else ()
        try:
            crowd.retrying(connection, transaction, DEADLOCK, *serialization)
        except psycopg.errors.CheckViolation:
            connection.execute("ROLLBACK")

    def locking_transfer(connection: psycopg.Connection, _: int) -> None:
        source, target = random.sample(range(1, ACCOUNTS + 1), 2)

        def transaction() -> None:
            connection.execute("BEGIN")
            query = "SELECT id, balance FROM account WHERE id IN (%s, %s) ORDER BY id FOR UPDATE"
            balances = dict(connection.execute(query, (source, target)).fetchall())
            amount = min(balances[source], random.randint(1, 50))
            for row, by in ((source, -amount), (target, amount)):
                connection.execute("UPDATE account SET balance = %s WHERE id = %s", (balances[row] + by, row))
            connection.execute("COMMIT")

        crowd.retrying(connection, transaction, DEADLOCK)

    def one_statement(connection: psycopg.Connection, _: int) -> None:
        source, target = random.sample(range(1, ACCOUNTS + 1), 2)
        sql = """UPDATE account SET balance = balance + CASE WHEN id = %s THEN -1 ELSE 1 END WHERE id IN (%s, %s)"""
        try:
            crowd.retrying(connection, lambda: connection.execute(sql, (source, source, target)), DEADLOCK)
        except psycopg.errors.CheckViolation:
            pass

    def audit(connection: psycopg.Connection, _: int) -> None:
        total = connection.execute("SELECT sum(balance) FROM account").fetchone()[0]
        if total != ACCOUNTS * BALANCE:
            wrong.add(f"one statement saw {total}")

    def slow_audit(connection: psycopg.Connection, _: int) -> None:
        """A sum over several statements of one snapshot."""
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        total = 0
        for row in range(1, ACCOUNTS + 1):
            total += connection.execute("SELECT balance FROM account WHERE id = %s", (row,)).fetchone()[0]
        connection.execute("COMMIT")
        if total != ACCOUNTS * BALANCE:
            wrong.add(f"one snapshot held {total}")

    crowd.add(transfer, 6)
    crowd.add(locking_transfer, 3)
    crowd.add(one_statement, 2)
    crowd.add(audit, 2)
    crowd.add(slow_audit, 2)
    errors = crowd.run()
    with connect(database) as connection:
        total = connection.execute("SELECT sum(balance) FROM account").fetchone()[0]
    return f"total {total}; sums that were wrong meanwhile: {sorted(wrong)}; errors {errors}"


def swaps(database: str) -> str:
    """Tokens change places by way of a place nobody else uses; each place has one token, each token one place."""
    set_up(database, "CREATE TABLE token (id int PRIMARY KEY, place int NOT NULL UNIQUE)")
    with connect(database) as connection:
        connection.execute(f"INSERT INTO token SELECT g, g FROM generate_series(1, {PLACES}) AS g")
    crowd = Crowd(database)
    wrong: set[str] = set()

    def swap(connection: psycopg.Connection, number: int) -> None:
        one, two = random.sample(range(1, PLACES + 1), 2)

        def transaction() -> None:
            connection.execute("BEGIN")
            query = "SELECT id, place FROM token WHERE id IN (%s, %s) ORDER BY id FOR UPDATE"
            places = dict(connection.execute(query, (one, two)).fetchall())
            for token, place in ((one, -1 - number), (two, places[one]), (one, places[two])):
                connection.execute("UPDATE token SET place = %s WHERE id = %s", (place, token))
            connection.execute("COMMIT")

        crowd.retrying(connection, transaction, DEADLOCK)

    def grab(connection: psycopg.Connection, _: int) -> None:
        """Takes a place that is taken: refused, by whichever transaction's token it meets."""
        one, two = random.sample(range(1, PLACES + 1), 2)
        sql = "UPDATE token SET place = (SELECT place FROM token WHERE id = %s) WHERE id = %s"
        try:
            crowd.retrying(connection, lambda: connection.execute(sql, (one, two)), DEADLOCK)
        except psycopg.errors.UniqueViolation:
            pass

    def look(connection: psycopg.Connection, _: int) -> None:
        places = [place for (place,) in connection.execute("SELECT place FROM token")]
        if sorted(set(places)) != sorted(places) or len(places) != PLACES:
            wrong.add(str(sorted(places)))

    crowd.add(swap, 8)
    crowd.add(grab, 2)
    crowd.add(look, 2)
    errors = crowd.run()
    with connect(database) as connection:
        found = connection.execute("SELECT count(*), count(DISTINCT place) FROM token").fetchone()
    return f"tokens, places: {found}; seen meanwhile: {sorted(wrong)}; errors {errors}"


def first_come(database: str) -> str:
    """Everybody inserts the same keys in every way; each key is had by exactly one, and by who was told so."""
    set_up(database, "CREATE TABLE prize (id int PRIMARY KEY, winner int NOT NULL)")
    crowd = Crowd(database)
    told: dict[int, list[int]] = {}
    turns = [0] * 16

    def try_it(connection: psycopg.Connection, number: int) -> None:
        turns[number] += 1
        key = turns[number]
        sql = "INSERT INTO prize VALUES (%s, %s)" + (" ON CONFLICT DO NOTHING" if number % 2 else "")
        won = True
        try:
            if number % 4 < 2:
                won = connection.execute(sql, (key, number)).rowcount == 1
            else:
                connection.execute("BEGIN")
                won = connection.execute(sql, (key, number)).rowcount == 1
                kept = random.random() < 0.5
                connection.execute("COMMIT" if kept else "ROLLBACK")
                won = won and kept
        except psycopg.errors.UniqueViolation:
            connection.execute("ROLLBACK")
            won = False
        if won:
            with crowd.lock:
                told.setdefault(key, []).append(number)

    crowd.add(try_it, 8)
    errors = crowd.run()
    with connect(database) as connection:
        winners = {key: [winner] for key, winner in connection.execute("SELECT id, winner FROM prize")}
    wrong = [(key, told.get(key), winners.get(key)) for key in {*told, *winners} if told.get(key) != winners.get(key)]
    return f"told one thing and found another (key, told, found): {wrong[:5]}; errors {errors}"


def orphans(database: str) -> str:
    """Parents come and go while children are born to them: at no time has a child no parent."""
    set_up(
        database,
        """
        CREATE TABLE parent (id int PRIMARY KEY, v int NOT NULL);
        CREATE TABLE child (id serial PRIMARY KEY, parent_id int NOT NULL REFERENCES parent (id))
        """,
    )
    crowd = Crowd(database)
    wrong: set[str] = set()

    def attempt(connection: psycopg.Connection, statements: list[tuple[str, tuple]]) -> None:
        try:
            if len(statements) > 1:
                connection.execute("BEGIN")
            for sql, values in statements:
                connection.execute(sql, values)
            if len(statements) > 1:
                connection.execute("COMMIT" if random.random() < 0.8 else "ROLLBACK")
        except (psycopg.errors.ForeignKeyViolation, psycopg.errors.DeadlockDetected):
            connection.execute("ROLLBACK")

    def parents(connection: psycopg.Connection, number: int) -> None:
        row = (random.randint(1, 5),)
        insert = ("INSERT INTO parent VALUES (%s, 0) ON CONFLICT DO NOTHING", row)
        delete = ("DELETE FROM parent WHERE id = %s", row)
        childless = ("DELETE FROM child WHERE parent_id = %s", row)
        touch = ("UPDATE parent SET v = v + 1 WHERE id = %s", row)
        choices = [[insert], [delete], [insert, touch], [childless, delete], [childless, delete, insert], [touch]]
        attempt(connection, random.choice(choices))

    def children(connection: psycopg.Connection, number: int) -> None:
        row = (random.randint(1, 5),)
        birth = ("INSERT INTO child (parent_id) VALUES (%s)", row)
        adopt = ("UPDATE child SET parent_id = %s WHERE parent_id = %s", (row[0], random.randint(1, 5)))
        attempt(connection, random.choice([[birth], [birth, birth], [adopt], [birth, adopt]]))

    def look(connection: psycopg.Connection, _: int) -> None:
        sql = "SELECT parent_id FROM child WHERE parent_id NOT IN (SELECT id FROM parent)"
        wrong.update(f"no parent {row}" for (row,) in connection.execute(sql))

    crowd.add(parents, 5)
    crowd.add(children, 5)
    crowd.add(look, 2)
    errors = crowd.run()
    with connect(database) as connection:
        look(connection, 0)
    return f"{sorted(wrong)}; errors {errors}"


add("increments", "first_come_first_served", first_come)
add("increments", "no_child_without_a_parent", orphans)
add("increments", "sum_of_acknowledged_increments", increments)
add("increments", "bank", bank)
add("increments", "unique_values_change_places", swaps)
