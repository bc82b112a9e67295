"""A table as a work queue: eight workers take jobs with SKIP LOCKED, and each job is done exactly once."""

import threading

import psycopg

from findings import add, connect, set_up

WORKERS = 8
JOBS = 120

NEXT = "SELECT id FROM jobs WHERE done = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"


def work_queue(database: str) -> str:
    set_up(
        database,
        """
        CREATE TABLE jobs (id int PRIMARY KEY, done int NOT NULL);
        CREATE TABLE results (job int, worker int)
        """,
    )
    with connect(database) as connection:
        connection.execute(f"INSERT INTO jobs SELECT g, 0 FROM generate_series(1, {JOBS}) AS g")
    errors: list[str] = []

    def worker(number: int) -> None:
        try:
            with connect(database) as connection:
                while take_one(connection, number):
                    pass
        except psycopg.Error as error:
            errors.append(f"{error.sqlstate}: {error}")

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with connect(database) as connection:
        done = connection.execute("SELECT count(*), count(DISTINCT job), min(job), max(job) FROM results").fetchone()
        left = connection.execute("SELECT count(*) FROM jobs WHERE done <> 1").fetchone()
    return f"done, distinct, from, to: {done}; left: {left}; errors: {sorted(set(errors))}"


def take_one(connection: psycopg.Connection, worker: int) -> bool:
    """One transaction: a job is found, done and marked."""
    with connection.transaction():
        job = connection.execute(NEXT).fetchone()
        if job is None:
            return False
        connection.execute("INSERT INTO results VALUES (%s, %s)", (job[0], worker))
        connection.execute("UPDATE jobs SET done = done + 1 WHERE id = %s", job)
    return True


add("rowlocks", "work_queue_of_eight_workers", work_queue)
