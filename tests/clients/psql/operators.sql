-- psql's commands for operators: grants, roles, settings, sizes. The roles are the server's, not a test's, and are dropped at the end.
CREATE ROLE op_readers;
CREATE ROLE op_app LOGIN;
GRANT op_readers TO op_app;
CREATE TABLE op_customer (id serial PRIMARY KEY, email varchar(80) NOT NULL UNIQUE, balance bigint DEFAULT 0);
CREATE TABLE op_purchase (id bigint PRIMARY KEY, customer_id int NOT NULL REFERENCES op_customer (id), note text);
CREATE INDEX op_purchase_customer ON op_purchase (customer_id);
INSERT INTO op_customer (email) VALUES ('a'), ('b');
GRANT SELECT ON op_customer TO op_app;
GRANT UPDATE (note), SELECT (id) ON op_purchase TO op_app WITH GRANT OPTION;
GRANT INSERT ON op_purchase TO PUBLIC;
GRANT USAGE ON SEQUENCE op_customer_id_seq TO op_app;
\echo ## privileges
\dp op_*
\echo ## privileges_of_one
\z op_purchase
\echo ## sequences
\ds op_*
\d op_customer_id_seq
\echo ## sizes_of_tables
\dt+ op_*
\echo ## sizes_of_indexes
\di+ op_*
\echo ## roles
\du+ op_*
\dg op_*
\echo ## default_privileges
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO op_readers;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SEQUENCES TO op_readers;
\ddp
ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE SELECT ON TABLES FROM op_readers;
ALTER DEFAULT PRIVILEGES REVOKE USAGE ON SEQUENCES FROM op_readers;
\echo ## schemas
\dn+ public
\echo ## settings_of_roles
ALTER ROLE op_app SET search_path = 'public';
ALTER ROLE op_app SET statement_timeout = '5s';
\drds op_app
\echo ## settings
\dconfig statement_timeout
\echo ## tablespaces
\db
\echo ## extensions
\dx
\echo ## foreign
\dew
\des
\echo ## table_statement
TABLE op_customer;
TABLE op_customer ORDER BY id DESC LIMIT 1;
SET ROLE op_app;
TABLE op_customer;
TABLE op_purchase;
\echo :SQLSTATE
RESET ROLE;
\echo ## clean_up
DROP TABLE op_purchase, op_customer;
DROP OWNED BY op_app, op_readers;
DROP ROLE op_app, op_readers;
