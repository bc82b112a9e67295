-- What a person types into psql. Each `## name` line starts a case; errors are shown by their SQLSTATE.
\echo ## create_and_insert
CREATE TABLE item (id serial PRIMARY KEY, name text NOT NULL, price numeric(10,2), added timestamp);
INSERT INTO item (name, price, added) VALUES ('apple', 1.20, '2024-01-02 03:04:05'), ('pear', NULL, NULL);
INSERT INTO item (name) VALUES ('naïve ☃') RETURNING id, name;
\echo ## select_aligned
SELECT * FROM item ORDER BY id;
\echo ## select_expanded
\x on
SELECT id, name FROM item WHERE id = 1;
\x off
\echo ## select_csv
\pset format csv
SELECT id, name, price FROM item ORDER BY id;
\pset format aligned
\echo ## null_display
\pset null '(null)'
SELECT price FROM item WHERE id = 2;
\pset null ''
\echo ## update_delete
UPDATE item SET price = price * 2 WHERE price IS NOT NULL;
DELETE FROM item WHERE name = 'pear';
SELECT name, price FROM item ORDER BY id;
\echo ## several_statements_in_one_message
SELECT 1 AS a\; SELECT 2 AS b\; SELECT 'three' AS c;
\echo ## several_statements_with_an_error_keep_nothing
INSERT INTO item (name) VALUES ('lost')\; INSERT INTO item (id, name) VALUES (1, 'duplicate');
\echo :SQLSTATE
SELECT count(*) FROM item;
\echo ## explicit_transaction_in_one_message
BEGIN\; INSERT INTO item (name) VALUES ('kept')\; COMMIT;
SELECT count(*) FROM item;
\echo ## transaction_with_rollback
BEGIN;
INSERT INTO item (name) VALUES ('undone');
SELECT count(*) FROM item;
ROLLBACK;
SELECT count(*) FROM item;
\echo ## savepoint
BEGIN;
INSERT INTO item (name) VALUES ('first');
SAVEPOINT one;
INSERT INTO item (name) VALUES ('second');
ROLLBACK TO one;
INSERT INTO item (name) VALUES ('third');
COMMIT;
SELECT name FROM item WHERE name IN ('first', 'second', 'third') ORDER BY name;
\echo ## error_in_a_transaction
BEGIN;
SELECT * FROM missing;
\echo :SQLSTATE
SELECT 1;
\echo :SQLSTATE
COMMIT;
\echo ## errors
SELEC 1;
\echo :SQLSTATE
SELECT missing FROM item;
\echo :SQLSTATE
INSERT INTO item (id, name) VALUES (1, 'again');
\echo :SQLSTATE
INSERT INTO item (name) VALUES (NULL);
\echo :SQLSTATE
SELECT 1/0;
\echo :SQLSTATE
DROP TABLE missing;
\echo :SQLSTATE
\echo ## error_message_of_a_missing_table
SELECT * FROM missing;
\echo :LAST_ERROR_MESSAGE
\echo ## comments_and_quotes
SELECT 'it''s' AS a, E'tab\there' AS b, $$dollar 'quoted'$$ AS c /* a /* nested */ comment */; -- the end
\echo ## empty_statement
;
SELECT 1 AS after_nothing;
\echo ## group_and_order
SELECT length(name) AS letters, count(*) FROM item GROUP BY 1 ORDER BY 1;
\echo ## cte_and_window
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5)
SELECT i, sum(i) OVER (ORDER BY i) FROM n ORDER BY i;
\echo ## like_is_case_sensitive
SELECT 'Apple' LIKE 'apple%' AS "like", 'Apple' ILIKE 'apple%' AS "ilike";
\echo ## nulls_sort_last
SELECT * FROM (VALUES (2), (NULL), (1)) AS v (x) ORDER BY x;
\echo ## gset_and_variables
SELECT count(*) AS items FROM item \gset
\echo :items
\set pattern kept
SELECT name FROM item WHERE name = :'pattern';
\echo ## gdesc
SELECT id, name, count(*) OVER () AS n FROM item \gdesc
\echo ## prepare_and_execute
PREPARE by_name (text) AS SELECT count(*) FROM item WHERE name = $1;
EXECUTE by_name('kept');
DEALLOCATE by_name;
\echo ## truncate_and_drop
TRUNCATE item;
SELECT count(*) FROM item;
DROP TABLE item;
SELECT count(*) FROM item;
\echo :SQLSTATE
