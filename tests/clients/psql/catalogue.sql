-- psql's own commands about the catalogue, as a person sees their answers.
CREATE TABLE customer (id serial PRIMARY KEY, email varchar(80) NOT NULL UNIQUE, balance bigint DEFAULT 0, active boolean NOT NULL DEFAULT true);
CREATE TABLE purchase (
    id bigint PRIMARY KEY, customer_id int NOT NULL REFERENCES customer (id), note text, CHECK (id > 0)
);
CREATE INDEX purchase_customer ON purchase (customer_id);
CREATE VIEW buyers AS SELECT c.email, p.note FROM customer c JOIN purchase p ON p.customer_id = c.id;
\echo ## tables
\dt
\echo ## one_table
\d customer
\echo ## table_with_reference
\d purchase
\echo ## relations
\d
\echo ## views
\dv
\echo ## view
\d buyers
\echo ## indexes
\di
\echo ## sequences
\ds
\echo ## this_database
SELECT datname = current_database() FROM pg_database WHERE datname = current_database();
\echo ## databases
\t on
\pset format unaligned
SELECT count(*) FROM pg_database WHERE datname IN ('postgres', 'holdfast');
\l postgres
\t off
\pset format aligned
\echo ## schemas
\dn
\echo ## roles
\du
\echo ## describe_nothing
\d no_such_table
\echo ## connection_information
\echo :USER :HOST
SELECT current_user, session_user, current_schema();
\echo ## server_version_is_a_number
SELECT current_setting('server_version_num')::int > 90000 AS modern;
\echo ## information_schema
SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name;
SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_name = 'customer' ORDER BY ordinal_position;
\echo ## regclass
SELECT 'customer'::regclass;
\echo ## alter_table
ALTER TABLE customer ADD COLUMN phone text;
ALTER TABLE customer RENAME COLUMN balance TO saldo;
\d customer
\echo ## drop_index
DROP INDEX purchase_customer;
\di
