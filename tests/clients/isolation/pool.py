"""A small web shop: 32 threads share a psycopg_pool of 12 connections and order, cancel, restock and report. Everybody
takes rows in the same order, at READ COMMITTED: no deadlock, no serialization failure.

At the end the books must balance: what is in stock, what was ordered and what was bought agree, no order line lacks
its order, no stock is below zero, and every order the program was told of is there.
"""

import random
import sys
import threading
import time

import psycopg
from psycopg_pool import ConnectionPool

from crowd import SECONDS
from findings import add, connect, set_up

THREADS = 32
CONNECTIONS = 12
ARTICLES = 10
STOCK = 200

TABLES = f"""
    CREATE TABLE article (id int PRIMARY KEY, stock int NOT NULL CHECK (stock >= 0), bought int NOT NULL);
    CREATE TABLE orders (id serial PRIMARY KEY, customer int NOT NULL, note text NOT NULL UNIQUE);
    CREATE TABLE line (
        id serial PRIMARY KEY,
        order_id int NOT NULL REFERENCES orders (id) ON DELETE CASCADE,
        article_id int NOT NULL REFERENCES article (id),
        amount int NOT NULL CHECK (amount > 0)
    );
    INSERT INTO article SELECT g, {STOCK}, {STOCK} FROM generate_series(1, {ARTICLES}) AS g
"""

BOOKS = """
    SELECT count(*) FROM article AS a
    WHERE a.bought <> a.stock + (SELECT coalesce(sum(amount), 0) FROM line WHERE article_id = a.id) OR a.stock < 0
"""


class Shop:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.orders: set[str] = set()
        self.errors: list[str] = []

    def live(self, pool: ConnectionPool, number: int, until: float) -> None:
        choose = random.Random(number)
        serial = 0
        while time.monotonic() < until:
            serial += 1
            action = choose.choices((self.order, self.cancel, self.restock, self.report), (6, 2, 2, 1))[0]
            try:
                with pool.connection() as connection:
                    action(connection, choose, f"{number}-{serial}")
            except psycopg.errors.CheckViolation:
                pass  # out of stock
            except Exception as error:  # told at the end, whatever it is
                with self.lock:
                    self.errors.append(f"{action.__name__}: {type(error).__name__}: {error}")
                return

    def order(self, connection: psycopg.Connection, choose: random.Random, note: str) -> None:
        articles = sorted(choose.sample(range(1, ARTICLES + 1), choose.randint(1, 3)))
        with connection.transaction():
            sql = "INSERT INTO orders (customer, note) VALUES (%s, %s) RETURNING id"
            order = connection.execute(sql, (choose.randint(1, 99), note)).fetchone()[0]
            for article in articles:
                amount = choose.randint(1, 4)
                connection.execute("UPDATE article SET stock = stock - %s WHERE id = %s", (amount, article))
                sql = "INSERT INTO line (order_id, article_id, amount) VALUES (%s, %s, %s)"
                connection.execute(sql, (order, article, amount))
        with self.lock:
            self.orders.add(note)

    def cancel(self, connection: psycopg.Connection, choose: random.Random, _: str) -> None:
        with self.lock:
            if not self.orders:
                return
            note = choose.choice(sorted(self.orders))
        with connection.transaction():
            sql = "SELECT id FROM orders WHERE note = %s FOR UPDATE"
            row = connection.execute(sql, (note,)).fetchone()
            if row is None:
                return
            sql = "SELECT article_id, amount FROM line WHERE order_id = %s ORDER BY article_id"
            for article, amount in connection.execute(sql, row).fetchall():
                connection.execute("UPDATE article SET stock = stock + %s WHERE id = %s", (amount, article))
            connection.execute("DELETE FROM orders WHERE id = %s", row)
        with self.lock:
            self.orders.discard(note)

    def restock(self, connection: psycopg.Connection, choose: random.Random, _: str) -> None:
        connection.autocommit = True
        try:
            sql = "UPDATE article SET stock = stock + 5, bought = bought + 5 WHERE id = %s"
            connection.execute(sql, (choose.randint(1, ARTICLES),))
        finally:
            connection.autocommit = False

    def report(self, connection: psycopg.Connection, _: random.Random, __: str) -> None:
        """The books balance in every snapshot."""
        unbalanced = connection.execute(BOOKS).fetchone()[0]
        if unbalanced:
            raise AssertionError(f"{unbalanced} articles do not balance")


def shop(database: str) -> str:
    set_up(database, TABLES)
    program = Shop()
    until = time.monotonic() + SECONDS
    with ConnectionPool(kwargs={"dbname": database}, min_size=CONNECTIONS, max_size=CONNECTIONS, timeout=60) as pool:
        threads = [threading.Thread(target=program.live, args=(pool, n, until)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with connect(database) as connection:
        unbalanced = connection.execute(BOOKS).fetchone()[0]
        notes = {note for (note,) in connection.execute("SELECT note FROM orders")}
        orphans = connection.execute(
            "SELECT count(*) FROM line WHERE order_id NOT IN (SELECT id FROM orders)"
        ).fetchone()[0]
        empty = connection.execute(
            "SELECT count(*) FROM orders WHERE id NOT IN (SELECT order_id FROM line)"
        ).fetchone()[0]
    print(f"  {len(notes)} orders", file=sys.stderr)
    return (
        f"unbalanced {unbalanced}, orphans {orphans}, empty {empty}, lost {len(program.orders - notes)}, "
        f"unknown {len(notes - program.orders)}, errors {sorted(set(program.errors))[:3]}"
    )


add("pool", "shop_of_32_threads", shop)
