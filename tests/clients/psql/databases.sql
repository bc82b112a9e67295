-- Several databases on one server. The names are this script's own, since databases are the server's, not a test's.
\echo ## create_and_connect
CREATE DATABASE second_one;
\set first :DBNAME
\c second_one
CREATE TABLE only_here (id int PRIMARY KEY);
INSERT INTO only_here VALUES (1);
SELECT current_database();
\dt
\echo ## tables_belong_to_their_database
\c :first
SELECT count(*) FROM only_here;
\echo :SQLSTATE
\echo ## duplicate
CREATE DATABASE second_one;
\echo :SQLSTATE
\echo ## not_in_a_transaction
BEGIN;
CREATE DATABASE third_one;
\echo :SQLSTATE
ROLLBACK;
\echo ## drop
DROP DATABASE second_one;
DROP DATABASE second_one;
\echo :SQLSTATE
DROP DATABASE IF EXISTS second_one;
\echo ## the_current_one_stays
DROP DATABASE :first;
\echo :SQLSTATE
SELECT 1 AS still_here;
\echo ## a_name_is_free_again
CREATE DATABASE second_one;
\c second_one
\dt
\c :first
DROP DATABASE second_one;
