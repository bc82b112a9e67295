-- The catalogue queries of a stock PostgreSQL 15 subscriber, in its words; the OID of the table is found first.
create table per(id int primary key, dscrptn_text varchar(20), region int, d date);
create table skill(id int primary key, s text, t text);
create table two(b text, a int, c bigint, primary key (c, a));
create table gen(id int primary key, a int, g int generated always as (a * 2) stored);
create table nokey(a int, b text);
create publication people for table per (id, dscrptn_text, region) where (region = 2), skill (id, s, t);
create publication more for table two where (a > 1 and b is not null), nokey;
create publication everything for all tables;
insert into skill values (1, 'x', null);
select oid as per from pg_class where relname = 'per' \gset
select oid as skill from pg_class where relname = 'skill' \gset
select oid as two from pg_class where relname = 'two' \gset
select oid as gen from pg_class where relname = 'gen' \gset
select oid as nokey from pg_class where relname = 'nokey' \gset
SELECT pg_catalog.set_config('search_path', '', false);
SELECT t.pubname FROM pg_catalog.pg_publication t WHERE t.pubname IN ('people');
SELECT t.pubname FROM pg_catalog.pg_publication t WHERE t.pubname IN ('people', 'nope', 'more') order by 1;
SELECT DISTINCT t.schemaname, t.tablename , t.attnames FROM pg_catalog.pg_publication_tables t WHERE t.pubname IN ('people');
SELECT DISTINCT t.schemaname, t.tablename , t.attnames FROM pg_catalog.pg_publication_tables t WHERE t.pubname IN ('everything') order by 2;
BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ;
SELECT c.oid, c.relreplident, c.relkind  FROM pg_catalog.pg_class c  INNER JOIN pg_catalog.pg_namespace n        ON (c.relnamespace = n.oid) WHERE n.nspname = 'public'   AND c.relname = 'per' \gset found_
\echo :found_relreplident :found_relkind
SELECT c.relreplident, c.relkind  FROM pg_catalog.pg_class c  INNER JOIN pg_catalog.pg_namespace n        ON (c.relnamespace = n.oid) WHERE n.nspname = 'public'   AND c.relname = 'nokey';
SELECT DISTINCT  (CASE WHEN (array_length(gpt.attrs, 1) = c.relnatts)   THEN NULL ELSE gpt.attrs END)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt,  pg_class c WHERE gpt.relid = :per AND c.oid = gpt.relid   AND p.pubname IN ( 'people' );
SELECT a.attnum,       a.attname,       a.atttypid,       a.attnum = ANY(i.indkey)  FROM pg_catalog.pg_attribute a  LEFT JOIN pg_catalog.pg_index i       ON (i.indexrelid = pg_get_replica_identity_index(:per)) WHERE a.attnum > 0::pg_catalog.int2   AND NOT a.attisdropped AND a.attgenerated = ''   AND a.attrelid = :per ORDER BY a.attnum;
SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt WHERE gpt.relid = :per   AND p.pubname IN ( 'people' );
SELECT DISTINCT  (CASE WHEN (array_length(gpt.attrs, 1) = c.relnatts)   THEN NULL ELSE gpt.attrs END)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt,  pg_class c WHERE gpt.relid = :per AND c.oid = gpt.relid   AND p.pubname IN ( 'people', 'everything' ) order by 1;
SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt WHERE gpt.relid = :per   AND p.pubname IN ( 'people', 'everything' ) order by 1;
SELECT DISTINCT  (CASE WHEN (array_length(gpt.attrs, 1) = c.relnatts)   THEN NULL ELSE gpt.attrs END)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt,  pg_class c WHERE gpt.relid = :skill AND c.oid = gpt.relid   AND p.pubname IN ( 'people' );
SELECT a.attnum,       a.attname,       a.atttypid,       a.attnum = ANY(i.indkey)  FROM pg_catalog.pg_attribute a  LEFT JOIN pg_catalog.pg_index i       ON (i.indexrelid = pg_get_replica_identity_index(:skill)) WHERE a.attnum > 0::pg_catalog.int2   AND NOT a.attisdropped AND a.attgenerated = ''   AND a.attrelid = :skill ORDER BY a.attnum;
SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt WHERE gpt.relid = :skill   AND p.pubname IN ( 'people' );
SELECT DISTINCT  (CASE WHEN (array_length(gpt.attrs, 1) = c.relnatts)   THEN NULL ELSE gpt.attrs END)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt,  pg_class c WHERE gpt.relid = :skill AND c.oid = gpt.relid   AND p.pubname IN ( 'more' );
SELECT a.attnum,       a.attname,       a.atttypid,       a.attnum = ANY(i.indkey)  FROM pg_catalog.pg_attribute a  LEFT JOIN pg_catalog.pg_index i       ON (i.indexrelid = pg_get_replica_identity_index(:skill)) WHERE a.attnum > 0::pg_catalog.int2   AND NOT a.attisdropped AND a.attgenerated = ''   AND a.attrelid = :skill ORDER BY a.attnum;
SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt WHERE gpt.relid = :skill   AND p.pubname IN ( 'more' );
SELECT DISTINCT  (CASE WHEN (array_length(gpt.attrs, 1) = c.relnatts)   THEN NULL ELSE gpt.attrs END)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt,  pg_class c WHERE gpt.relid = :two AND c.oid = gpt.relid   AND p.pubname IN ( 'more' );
SELECT a.attnum,       a.attname,       a.atttypid,       a.attnum = ANY(i.indkey)  FROM pg_catalog.pg_attribute a  LEFT JOIN pg_catalog.pg_index i       ON (i.indexrelid = pg_get_replica_identity_index(:two)) WHERE a.attnum > 0::pg_catalog.int2   AND NOT a.attisdropped AND a.attgenerated = ''   AND a.attrelid = :two ORDER BY a.attnum;
SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt WHERE gpt.relid = :two   AND p.pubname IN ( 'more' );
SELECT DISTINCT  (CASE WHEN (array_length(gpt.attrs, 1) = c.relnatts)   THEN NULL ELSE gpt.attrs END)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt,  pg_class c WHERE gpt.relid = :two AND c.oid = gpt.relid   AND p.pubname IN ( 'more', 'everything' ) order by 1;
SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt WHERE gpt.relid = :two   AND p.pubname IN ( 'more', 'everything' ) order by 1;
SELECT DISTINCT  (CASE WHEN (array_length(gpt.attrs, 1) = c.relnatts)   THEN NULL ELSE gpt.attrs END)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt,  pg_class c WHERE gpt.relid = :gen AND c.oid = gpt.relid   AND p.pubname IN ( 'everything' );
SELECT a.attnum,       a.attname,       a.atttypid,       a.attnum = ANY(i.indkey)  FROM pg_catalog.pg_attribute a  LEFT JOIN pg_catalog.pg_index i       ON (i.indexrelid = pg_get_replica_identity_index(:gen)) WHERE a.attnum > 0::pg_catalog.int2   AND NOT a.attisdropped AND a.attgenerated = ''   AND a.attrelid = :gen ORDER BY a.attnum;
SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt WHERE gpt.relid = :gen   AND p.pubname IN ( 'everything' );
SELECT DISTINCT  (CASE WHEN (array_length(gpt.attrs, 1) = c.relnatts)   THEN NULL ELSE gpt.attrs END)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt,  pg_class c WHERE gpt.relid = :nokey AND c.oid = gpt.relid   AND p.pubname IN ( 'more', 'everything' ) order by 1;
SELECT DISTINCT pg_get_expr(gpt.qual, gpt.relid)  FROM pg_publication p,  LATERAL pg_get_publication_tables(p.pubname) gpt WHERE gpt.relid = :nokey   AND p.pubname IN ( 'more', 'everything' ) order by 1;
COPY public.skill (id, s, t) TO STDOUT;
COMMIT;
select pg_get_replica_identity_index('public.two'::regclass) = 'public.two_pkey'::regclass;
select pg_get_replica_identity_index('public.nokey'::regclass);
select pubname, gpt.attrs from pg_publication p cross join lateral pg_get_publication_tables(p.pubname) as gpt where gpt.relid = :per order by 1;
select pubname, x.r = :skill from pg_publication, pg_get_publication_tables(pubname) as x(r) where x.r = :skill order by 1;
select p.pubname from pg_publication p, pg_class c, pg_get_publication_tables(p.pubname) as x join pg_namespace n on n.nspname = 'public' where c.relname = 'two' and x.relid = c.oid order by 1;
select relid = :two from pg_get_publication_tables('more') where relid = :two;
select gpt.relid from pg_get_publication_tables(p.pubname) gpt, pg_publication p;
select nope.relid from pg_publication p, pg_get_publication_tables(p.nope) nope;
