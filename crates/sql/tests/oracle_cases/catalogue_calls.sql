-- Functions over the catalogue whose argument is a column without a table alias.
create table cc_p (id int primary key, b int unique)
create table cc_c (id int primary key, p int references cc_p (id))
select conname, pg_get_constraintdef(oid) from pg_constraint where conname like 'cc\_%' order by conname
select relname, oid::regclass::text from pg_class where relname like 'cc\_%' order by relname
select indexrelid::regclass::text, pg_get_indexdef(indexrelid) from pg_index where indrelid in ('cc_p'::regclass, 'cc_c'::regclass) order by 1
select rolname = pg_get_userbyid(oid) from pg_roles where rolname = 'holdfast'
select nspname = oid::regnamespace::text from pg_namespace where nspname in ('public', 'pg_catalog')
select current_schema(), current_schemas(true), current_schemas(false)
select current_setting('nosuch')
select current_setting('no.such', true)
select count(*), min(word), max(word) from pg_get_keywords()
select k.word, k.catcode, k.barelabel, k.catdesc, k.baredesc from pg_get_keywords() k where k.word in ('select', 'between', 'left', 'abort', 'over') order by 1
select tableoid::regclass::text, c.tableoid = 'pg_class'::regclass from pg_class c where relname = 'pg_type'
select count(*) > 5 from pg_get_keywords() where word <> all ('{select,abort}'::text[])
