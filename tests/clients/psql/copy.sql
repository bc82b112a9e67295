-- COPY through psql: from standard input, to standard output, and files by \copy.
CREATE TABLE copied (id int PRIMARY KEY, name text, amount double precision);
\echo ## copy_from_stdin
COPY copied FROM STDIN;
1	one	1.5
2	\N	\N
3	tab\there and back\\slash	-0.25
\.
SELECT * FROM copied ORDER BY id;
\echo ## copy_from_stdin_csv
COPY copied (id, name) FROM STDIN WITH (FORMAT csv, HEADER true);
id,name
4,"four, with comma"
5,"a ""quote"""
6,
\.
SELECT * FROM copied WHERE id > 3 ORDER BY id;
\echo ## copy_to_stdout
COPY copied TO STDOUT;
\echo ## copy_query_to_stdout_csv
COPY (SELECT id, name FROM copied ORDER BY id DESC) TO STDOUT WITH (FORMAT csv, HEADER true);
\echo ## copy_delimiter_and_null
COPY (SELECT * FROM copied WHERE id < 3 ORDER BY id) TO STDOUT WITH (DELIMITER '|', NULL 'nil');
\echo ## backslash_copy_out
\copy (SELECT id FROM copied ORDER BY id) TO STDOUT
\echo ## bad_line_keeps_nothing
COPY copied FROM STDIN;
10	ten	1
eleven	x	1
\.
SELECT count(*) FROM copied;
\echo ## duplicate_keeps_nothing
COPY copied FROM STDIN;
20	twenty	1
1	again	1
\.
SELECT count(*) FROM copied;
\echo ## missing_column
COPY copied FROM STDIN;
30	thirty
\.
SELECT count(*) FROM copied;
\echo ## missing_table
COPY nothing_here FROM STDIN;
\echo :SQLSTATE
