"""Who waits for whom over rows and keys, and what comes of it when the other one commits or rolls back.

Every scenario runs twice: in the simple protocol, and in the extended one.
"""

from scenarios import COMMIT_OR_ROLLBACK, FAMILY, ROWS, scenario


def waits(name: str, *arguments: str, **ends: str) -> None:
    scenario("waits", name, *arguments, **ends)
    scenario("waits_extended", name, *arguments, extended=True, **ends)


UNIQUE = """
    CREATE TABLE t (id int PRIMARY KEY, name text UNIQUE);
    INSERT INTO t VALUES (1, 'one'), (2, 'two')
"""

FINAL = "=   SELECT id, v FROM t ORDER BY id"
KIN = """
    =   SELECT id, name FROM parent ORDER BY id
    =   SELECT id, parent_id FROM child ORDER BY id
"""

# Keys.

for _name, _statement in {
    "insert_the_same_key": "INSERT INTO t VALUES (9, 92)",
    "insert_or_update": "INSERT INTO t VALUES (9, 92) ON CONFLICT (id) DO UPDATE SET v = t.v + 1",
    "insert_or_nothing": "INSERT INTO t VALUES (9, 92) ON CONFLICT DO NOTHING",
    "update_to_the_same_key": "UPDATE t SET id = 9 WHERE id = 2",
}.items():
    for _level in ("read committed", "repeatable read"):
        waits(
            f"uncommitted_insert_against.{_name}.{_level}",
            f"""
            1   BEGIN
            1   INSERT INTO t VALUES (9, 91)
            2   BEGIN ISOLATION LEVEL {_level.upper()}
            2   SELECT count(*) FROM t
            2*  {_statement}
            1   END
            2   COMMIT
            {FINAL}
            """,
            **COMMIT_OR_ROLLBACK,
        )
    # The same in one message, outside a transaction.
    waits(
        f"uncommitted_insert_against.{_name}.autocommit",
        f"""
        1   BEGIN
        1   INSERT INTO t VALUES (9, 91)
        2*  {_statement}
        1   END
        {FINAL}
        """,
        **COMMIT_OR_ROLLBACK,
    )

waits(
    "uncommitted_unique_value_against_insert",
    """
    1   BEGIN
    1   UPDATE t SET name = 'new' WHERE id = 1
    2   BEGIN
    2*  INSERT INTO t VALUES (3, 'new')
    1   END
    2   ROLLBACK
    """,
    UNIQUE,
    **COMMIT_OR_ROLLBACK,
)
waits(
    "freed_unique_value_against_insert",
    """
    1   BEGIN
    1   UPDATE t SET name = 'new' WHERE id = 1
    2   BEGIN
    2*  INSERT INTO t VALUES (3, 'one')
    1   END
    2   ROLLBACK
    """,
    UNIQUE,
    **COMMIT_OR_ROLLBACK,
)
GIVEN_UP = {"delete": "DELETE FROM t WHERE id = 1", "move": "UPDATE t SET id = 9 WHERE id = 1"}

# A key that an open transaction has given up may come back: whoever wants it waits.
for _kind, _begin, _commit in (("transaction", "2 BEGIN", "2 COMMIT"), ("autocommit", "", "")):
    for _name, _statement in GIVEN_UP.items():
        for _other, _wanted in {
            "insert": "INSERT INTO t VALUES (1, 11)",
            "update": "UPDATE t SET id = 1 WHERE id = 2",
            "insert_or_update": "INSERT INTO t VALUES (1, 11) ON CONFLICT (id) DO UPDATE SET v = excluded.v",
        }.items():
            waits(
                f"uncommitted_{_name}_against_{_other}_of_the_key.{_kind}",
                f"""
                1   BEGIN
                1   {_statement}
                {_begin}
                2*  {_wanted}
                1   END
                {_commit}
                {FINAL}
                """,
                **COMMIT_OR_ROLLBACK,
            )
    scenario(
        "waits",
        f"uncommitted_delete_against_insert_or_nothing_of_the_key.{_kind}",
        f"""
        1   BEGIN
        1   DELETE FROM t WHERE id = 1
        {_begin}
        2*  INSERT INTO t VALUES (1, 11) ON CONFLICT DO NOTHING
        1   END
        {_commit}
        {FINAL}
        """,
        **COMMIT_OR_ROLLBACK,
    )
    waits(
        f"child_deleted_then_delete_of_the_parent.{_kind}",
        f"""
        1   INSERT INTO child VALUES (1, 1)
        1   BEGIN
        1   DELETE FROM child WHERE id = 1
        {_begin}
        2*  DELETE FROM parent WHERE id = 1
        1   END
        {_commit}
        {KIN}
        """,
        FAMILY,
        **COMMIT_OR_ROLLBACK,
    )
    waits(
        f"child_moved_then_delete_of_its_old_parent.{_kind}",
        f"""
        1   INSERT INTO child VALUES (1, 1)
        1   BEGIN
        1   UPDATE child SET parent_id = 2 WHERE id = 1
        {_begin}
        2*  DELETE FROM parent WHERE id = 1
        1   END
        {_commit}
        {KIN}
        """,
        FAMILY,
        **COMMIT_OR_ROLLBACK,
    )
for _name, _index in {"over_an_expression": "ON t ((v / 10))", "partial": "ON t (v) WHERE v > 0"}.items():
    scenario(
        "waits",
        f"unique_index_{_name}",
        f"""
        1   BEGIN
        1   INSERT INTO t VALUES (8, 80)
        2   BEGIN
        2*  INSERT INTO t VALUES (9, 80)
        1   COMMIT
        2   COMMIT
        {FINAL}
        """,
        ROWS + f"; CREATE UNIQUE INDEX t_index {_index}",
    )

# A row that is locked but stays: nobody has to wait to learn that its key is taken.
for _lock, _held in {
    "for_key_share": "SELECT id FROM parent WHERE id = 1 FOR KEY SHARE",
    "for_update": "SELECT id FROM parent WHERE id = 1 FOR UPDATE",
    "by_a_child": "INSERT INTO child VALUES (1, 1)",
}.items():
    waits(
        f"key_of_a_row_locked_{_lock}",
        f"""
        1   BEGIN
        1   {_held}
        2   INSERT INTO parent VALUES (1, 'again')
        2   INSERT INTO parent VALUES (1, 'again') ON CONFLICT DO NOTHING
        2   UPDATE parent SET id = 1 WHERE id = 2
        2   BEGIN
        2   INSERT INTO parent VALUES (1, 'again') ON CONFLICT DO NOTHING
        2   INSERT INTO parent VALUES (1, 'again')
        2   ROLLBACK
        2   BEGIN
        2   UPDATE parent SET id = 1 WHERE id = 2
        2   ROLLBACK
        1   COMMIT
        {KIN}
        """,
        FAMILY,
    )
waits(
    "other_keys_do_not_wait",
    f"""
    1   BEGIN
    1   INSERT INTO t VALUES (8, 80)
    2   BEGIN
    2   INSERT INTO t VALUES (9, 90)
    2   UPDATE t SET v = 21 WHERE id = 2
    1   UPDATE t SET v = 11 WHERE id = 1
    3   INSERT INTO t VALUES (7, 70)
    1   COMMIT
    2   COMMIT
    {FINAL}
    """,
)
waits(
    "two_transactions_take_serial_ids",
    """
    1   BEGIN
    1   INSERT INTO t (v) VALUES (1) RETURNING id
    2   BEGIN
    2   INSERT INTO t (v) VALUES (2) RETURNING id
    1   INSERT INTO t (v) VALUES (3) RETURNING id
    3   INSERT INTO t (v) VALUES (4) RETURNING id
    1   ROLLBACK
    2   COMMIT
    =   SELECT id, v FROM t ORDER BY id
    """,
    "CREATE TABLE t (id serial PRIMARY KEY, v int)",
)

# Rows.

HOLDERS = {"updated": "UPDATE t SET v = 99 WHERE id = 1", "deleted": "DELETE FROM t WHERE id = 1"}

for _name, _statement in {
    "plain": "UPDATE t SET v = v + 1 WHERE id = 1",
    "row_left_the_condition": "UPDATE t SET v = v + 1 WHERE id = 1 AND v = 10",
    "found_by_a_scan": "UPDATE t SET v = v + 1 WHERE v < 15",
    "every_row": "UPDATE t SET v = v + 1",
    "delete": "DELETE FROM t WHERE id = 1 AND v = 10",
    "returning": "UPDATE t SET v = v * 2 WHERE id = 1 RETURNING v",
}.items():
    for _holder, _held in HOLDERS.items():
        waits(
            f"update_of_a_row_being_{_holder}.{_name}",
            f"""
            1   BEGIN
            1   {_held}
            2   BEGIN
            2*  {_statement}
            1   END
            2   COMMIT
            {FINAL}
            """,
            **COMMIT_OR_ROLLBACK,
        )

for _holder, _held in HOLDERS.items():
    waits(
        f"repeatable_read_waits_for_a_row_being_{_holder}",
        f"""
        1   BEGIN
        1   {_held}
        2   BEGIN ISOLATION LEVEL REPEATABLE READ
        2   SELECT count(*) FROM t
        2*  UPDATE t SET v = v + 1 WHERE id = 1
        1   END
        2   COMMIT
        {FINAL}
        """,
        **COMMIT_OR_ROLLBACK,
    )
    waits(
        f"repeatable_read_meets_a_row_{_holder}_since",
        f"""
        2   BEGIN ISOLATION LEVEL REPEATABLE READ
        2   SELECT id, v FROM t ORDER BY id
        1   {_held}
        2   UPDATE t SET v = 21 WHERE id = 2
        2   SELECT id, v FROM t ORDER BY id
        2   UPDATE t SET v = 0 WHERE id = 1
        2   COMMIT
        {FINAL}
        """,
    )

# An update that changes no value counts as one: programs make transactions meet that way.
for _name, _statement in {"same_value": "UPDATE t SET v = v WHERE id = 1", "same_key": "UPDATE t SET id = id"}.items():
    waits(
        f"repeatable_read_meets_a_row_updated_to_the_{_name}",
        f"""
        2   BEGIN ISOLATION LEVEL REPEATABLE READ
        2   SELECT count(*) FROM t
        1   {_statement}
        2   UPDATE t SET v = 11 WHERE id = 1
        2   COMMIT
        {FINAL}
        """,
    )
waits(
    "write_skew_prevented_by_a_common_row",
    f"""
    1   BEGIN ISOLATION LEVEL REPEATABLE READ
    2   BEGIN ISOLATION LEVEL REPEATABLE READ
    1   SELECT id, v FROM t WHERE id IN (2, 3) ORDER BY id
    2   SELECT id, v FROM t WHERE id IN (2, 3) ORDER BY id
    1   UPDATE t SET v = v WHERE id = 1
    1   UPDATE t SET v = 0 WHERE id = 2
    2*  UPDATE t SET v = v WHERE id = 1
    1   COMMIT
    2   UPDATE t SET v = 0 WHERE id = 3
    2   COMMIT
    {FINAL}
    """,
)
waits(
    "repeatable_read_inserts_a_key_that_came_since",
    f"""
    2   BEGIN ISOLATION LEVEL REPEATABLE READ
    2   SELECT count(*) FROM t
    1   INSERT INTO t VALUES (9, 91)
    2   INSERT INTO t VALUES (9, 92)
    2   COMMIT
    {FINAL}
    """,
)
waits(
    "readers_neither_wait_nor_see_what_is_open",
    """
    1   BEGIN
    1   UPDATE t SET v = 99
    1   INSERT INTO t VALUES (9, 90)
    2   SELECT id, v FROM t ORDER BY id
    3   BEGIN ISOLATION LEVEL REPEATABLE READ
    3   SELECT sum(v) FROM t
    1   COMMIT
    2   SELECT id, v FROM t ORDER BY id
    3   SELECT sum(v) FROM t
    3   COMMIT
    """,
)
waits(
    "a_scan_does_not_wait_for_rows_it_leaves_alone",
    f"""
    1   BEGIN
    1   UPDATE t SET v = 10 WHERE id = 2
    1   INSERT INTO t VALUES (9, 10)
    2   UPDATE t SET v = 11 WHERE v = 10
    2   DELETE FROM t WHERE v = 30
    1   COMMIT
    {FINAL}
    """,
)
# Which of the two goes first is not PostgreSQL's promise.
waits(
    "two_wait_for_one",
    f"""
    1   BEGIN
    1   UPDATE t SET v = v + 1 WHERE id = 1
    2*  UPDATE t SET v = v + 10 WHERE id = 1
    3*  UPDATE t SET v = v + 100 WHERE id = 1
    1   COMMIT
    {FINAL}
    """,
)
waits(
    "autocommit_update_against_an_open_transaction",
    f"""
    1   BEGIN
    1   UPDATE t SET v = v + 1 WHERE id = 1
    2*  UPDATE t SET v = v * 2 WHERE id = 1
    3   UPDATE t SET v = v * 2 WHERE id = 2
    1   END
    {FINAL}
    """,
    **COMMIT_OR_ROLLBACK,
)
waits(
    "several_statements_in_one_message_against_an_open_transaction",
    f"""
    1   BEGIN
    1   UPDATE t SET v = v + 1 WHERE id = 1
    2*  UPDATE t SET v = v * 2 WHERE id = 2; UPDATE t SET v = v * 2 WHERE id = 1
    1   END
    {FINAL}
    """,
    **COMMIT_OR_ROLLBACK,
)
waits(
    "pipeline_against_an_open_transaction",
    f"""
    1   BEGIN
    1   UPDATE t SET v = v + 1 WHERE id = 1
    2*  PIPELINE UPDATE t SET v = v * 2 WHERE id = 2 ;; UPDATE t SET v = v * 2 WHERE id = 1 ;; SELECT sum(v) FROM t
    1   END
    {FINAL}
    """,
    **COMMIT_OR_ROLLBACK,
)
waits(
    "copy_of_a_key_not_committed_yet",
    f"""
    1   BEGIN
    1   INSERT INTO t VALUES (9, 91)
    2*  COPY t FROM STDIN <<< 8 80, 9 92
    1   END
    {FINAL}
    """,
    **COMMIT_OR_ROLLBACK,
)
waits(
    "copy_in_a_transaction_against_insert",
    f"""
    1   BEGIN
    1   COPY t FROM STDIN <<< 8 80, 9 90
    2*  INSERT INTO t VALUES (9, 92)
    1   END
    {FINAL}
    """,
    **COMMIT_OR_ROLLBACK,
)
waits(
    "savepoint_rolled_back_releases_its_locks",
    f"""
    1   BEGIN
    1   UPDATE t SET v = 11 WHERE id = 1
    1   SAVEPOINT s
    1   UPDATE t SET v = 21 WHERE id = 2
    2*  UPDATE t SET v = v * 10 WHERE id = 2
    1   ROLLBACK TO s
    3*  UPDATE t SET v = v * 10 WHERE id = 1
    1   COMMIT
    {FINAL}
    """,
)
waits(
    "failure_after_a_savepoint_releases_what_was_locked_since",
    f"""
    1   BEGIN
    1   UPDATE t SET v = 11 WHERE id = 1
    1   SAVEPOINT s
    1   UPDATE t SET v = 21 WHERE id = 2
    2*  UPDATE t SET v = v * 10 WHERE id = 2
    3*  UPDATE t SET v = v * 10 WHERE id = 1
    1   INSERT INTO t VALUES (3, 0)
    1   ROLLBACK TO s
    1   COMMIT
    {FINAL}
    """,
)
waits(
    "failed_transaction_releases_its_locks",
    f"""
    1   BEGIN
    1   UPDATE t SET v = 11 WHERE id = 1
    2*  UPDATE t SET v = v * 10 WHERE id = 1
    1   INSERT INTO t VALUES (2, 0)
    1   ROLLBACK
    {FINAL}
    """,
)

# Parents and children.

for _name, _statement in {
    "delete_of_the_parent": "DELETE FROM parent WHERE id = 1",
    "key_update_of_the_parent": "UPDATE parent SET id = 9 WHERE id = 1",
    "other_update_of_the_parent": "UPDATE parent SET name = 'uno' WHERE id = 1",
    "delete_of_another_parent": "DELETE FROM parent WHERE id = 2",
}.items():
    _star = "*" if "of_the_parent" in _name and "other" not in _name else ""
    waits(
        f"child_insert_then.{_name}",
        f"""
        1   BEGIN
        1   INSERT INTO child VALUES (1, 1)
        2   BEGIN
        2{_star}  {_statement}
        1   END
        2   COMMIT
        {KIN}
        """,
        FAMILY,
        **COMMIT_OR_ROLLBACK,
    )
    waits(
        f"child_insert_after.{_name}",
        f"""
        1   BEGIN
        1   {_statement}
        2   BEGIN
        2{_star}  INSERT INTO child VALUES (1, 1)
        1   END
        2   COMMIT
        {KIN}
        """,
        FAMILY,
        **COMMIT_OR_ROLLBACK,
    )
waits(
    "two_children_of_one_parent_do_not_wait",
    f"""
    1   BEGIN
    1   INSERT INTO child VALUES (1, 1)
    2   BEGIN
    2   INSERT INTO child VALUES (2, 1)
    1   COMMIT
    2   COMMIT
    {KIN}
    """,
    FAMILY,
)
waits(
    "child_of_a_parent_not_committed_yet",
    f"""
    1   BEGIN
    1   INSERT INTO parent VALUES (9, 'nine')
    2   INSERT INTO child VALUES (1, 9)
    2   BEGIN
    2   INSERT INTO child VALUES (1, 9)
    2   ROLLBACK
    2   INSERT INTO child VALUES (1, 2)
    2   BEGIN
    2   UPDATE child SET parent_id = 9 WHERE id = 1
    2   ROLLBACK
    1   COMMIT
    2   UPDATE child SET parent_id = 9 WHERE id = 1
    {KIN}
    """,
    FAMILY,
)
waits(
    "cascade_against_an_open_update_of_the_child",
    """
    1   BEGIN
    1   UPDATE child SET n = 1 WHERE id = 1
    2*  DELETE FROM parent WHERE id = 1
    1   COMMIT
    =   SELECT count(*) FROM child
    """,
    """
    CREATE TABLE parent (id int PRIMARY KEY);
    CREATE TABLE child (id int PRIMARY KEY, parent_id int REFERENCES parent (id) ON DELETE CASCADE, n int);
    INSERT INTO parent VALUES (1);
    INSERT INTO child VALUES (1, 1, 0)
    """,
)
for _name, _statement in {
    "deleted": "DELETE FROM parent WHERE id = 2",
    "added": "INSERT INTO parent VALUES (9, 'nine')",
}.items():
    waits(
        f"repeatable_read_child_of_a_parent_{_name}_since",
        f"""
        2   BEGIN ISOLATION LEVEL REPEATABLE READ
        2   SELECT count(*) FROM child
        1   {_statement}
        2   INSERT INTO child VALUES (1, {2 if _name == "deleted" else 9})
        2   COMMIT
        {KIN}
        """,
        FAMILY,
    )
waits(
    "repeatable_read_deletes_a_parent_whose_child_came_since",
    f"""
    2   BEGIN ISOLATION LEVEL REPEATABLE READ
    2   SELECT count(*) FROM child
    1   INSERT INTO child VALUES (1, 1)
    2   DELETE FROM parent WHERE id = 1
    2   COMMIT
    {KIN}
    """,
    FAMILY,
)
