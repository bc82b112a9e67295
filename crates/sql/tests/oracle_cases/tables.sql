create table t (id serial primary key, a int, b text not null default 'x', c numeric(10,2), d boolean default true, e timestamp, f varchar(5), g char(4))
insert into t (a, b) values (1, 'one'), (2, 'two'), (null, 'none')
select * from t order by id
insert into t (a) values (5) returning id, a, b, d
insert into t values (default, 7, default, 1.005, false, '2026-01-01', 'abc', 'ab') returning *
select id, f, g, length(g), g || '.', g = 'ab', g = 'ab  ' from t where g is not null
insert into t (b) values (null)
insert into t (f, b) values ('toolong', 'x')
insert into t (f) values ('abc     ')
insert into t (a) values (3000000000)
insert into t (a) values ('12')
insert into t (a) values ('abc')
insert into t (a) values (1.6) returning a
insert into t (a) values (true)
insert into t (nosuch) values (1)
insert into t (a, a) values (1, 2)
insert into t (a) values (1, 2)
insert into t (a, b) values (1)
insert into nosuch values (1)
insert into t (id) values (null)
insert into t (id, a) values (1, 1)
insert into t (id, a) values (100, 1) on conflict do nothing
insert into t (id, a) values (1, 50) on conflict (id) do update set a = excluded.a + t.a where t.a < 100 returning id, a
insert into t (id, a) values (1, 50) on conflict (id) do nothing returning id
insert into t (id, a) values (1, 50) on conflict (a) do nothing
insert into t (id, a) values (1, 50) on conflict on constraint t_pkey do update set a = 0 returning a
insert into t (id, a) select 200 + n, n from generate_series(1, 3) n returning id
select count(*), count(a), sum(a), min(a), max(a) from t
select avg(a) from t where id > 200
select sum(a), avg(a), sum(c), avg(c), min(c), max(c) from t
select sum(a::bigint), sum(a::float8), avg(a::float8), sum(a::numeric) from t where id > 200
select a, count(*) from t group by a order by a
select a, count(*) from t group by 1 order by 1 desc nulls last
select b, sum(a) s from t group by b having count(*) > 1 order by s
select a, b from t group by a
select a from t where count(*) > 1
select a, count(*) from t
select id, b, count(*) from t group by id order by id limit 1
select count(distinct a), count(distinct b) from t
select string_agg(b, ',' order by id) from t where id < 4
select bool_and(d), bool_or(d), every(d) from t
select max(b), min(e), max(d::int) from t
select max(d) from t
select sum(b) from t
select a from t order by a, id
select a from t order by a desc, id
select a from t order by a nulls first, id limit 2
select distinct a from t order by a
select distinct a from t order by id
select b as bb from t where id < 4 order by bb desc
select id + a as n from t where id in (1, 2) order by n
select a from t order by 5
select * from t where a = null
select id from t where a = 2 and b = 'two'
select a from t where d and a > 5 order by a
select id from t where not d
select id from t where d = false
select id from t where a
select id from t where b = 5
select id from t where id = '1'
select id from t where c = 1.01
select c, c * 2, c + 1, c = 1.010, c > 1 from t where c is not null
select id from t where e >= '2026-01-01' and e < '2026-01-02'
select id from t where e = date '2026-01-01'
update t set a = a + 1 where id = 1 returning a
update t set a = 2147483647 where id = 1
update t set a = a + 1 where id = 1
update t set b = null where id = 1
update t set nosuch = 1
update t set a = 1, a = 2
update t set (a, b) = (3, 'three') where id = 2 returning a, b
update t set a = default, b = default where id = 2 returning a, b
update t set a = 'x' where id = 1
update t set c = 123456789.999 where id = 1
update t set c = 12.345, f = 'q' where id = 1 returning c, f
update t as x set a = x.id where x.id = 1 returning x.a
update t set a = s.n from (values (1, 77)) as s(id, n) where t.id = s.id returning t.id, a
delete from t where id = 100 returning id
delete from t using (values (201), (202)) as v(n) where t.id = v.n returning id
delete from t where nosuch = 1
select count(*) from t
create table t (a int)
create table if not exists t (a int)
create table u (id integer primary key, t_id int references t(id) on delete cascade, n bigint unique, x double precision, y real, w smallint, check (n > 0))
insert into u (t_id) values (1)
insert into u values (1, 1, 10, 1.5, 2.5, 3)
insert into u values (2, 999, 11)
insert into u values (2, 2, 10)
insert into u values (2, 2, -1)
insert into u values (2, 2, 20, 0.1, 0.1, 32767)
insert into u (id, w) values (3, 32768)
update u set w = w + 1::smallint where id = 2
select x + y, x * 2, y / 3, w + 1, n / 3, w + n, x = 0.1, y = 0.1 from u order by id
select t.id, u.id from t left join u on u.t_id = t.id where t.id < 4 order by 1
select t.id, n from t join u on t.id = u.t_id order by 1
select * from t a join t b on a.id = b.id where a.id = 1
select id from t, u
select t.id from t cross join u order by 1 limit 2
select id, t_id, n from u natural join (select 1 as id) s
select id, a, n from t join u using (id) order by id
select * from (select id, a from t) p join (select id, n from u) q using (id) order by id
select p.id, q.id from (values (1), (2)) p(id) full join (values (2), (3)) q(id) using (id) order by id
select id from (values (1), (2)) p(id) full join (values (2), (3)) q(id) using (id) order by id
select p.id, q.id from (values (1), (2)) p(id) right join (values (2), (3)) q(id) on p.id = q.id order by q.id
select id, (select count(*) from u where u.t_id = t.id) from t where id < 3 order by id
select id from t where exists (select 1 from u where u.t_id = t.id) order by id
select id from t where id in (select t_id from u) order by id
select id from t where id not in (select t_id from u) order by id limit 1
select id from t where (id, id) in (select t_id, id from u) order by id
with x as (select id, a from t where id < 3) select count(*), min(id) from x
with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select sum(n), count(*) from r
with x(p, q) as (values (1, 'a')), y as (select p + 1 as p from x) select x.p, q, y.p from x, y
select row_number() over (order by id), id, rank() over (order by d), lag(id) over (order by id) from t where id < 4 order by id
select id, sum(id) over (order by id), count(*) over (), avg(id) over (partition by d order by id rows between 1 preceding and current row) from t where id < 4 order by id
select id, first_value(b) over w, ntile(2) over w from t where id < 4 window w as (order by id) order by id
select count(*) filter (where a > 1), sum(a) filter (where a is not null) from t
create view v as select id, a, count(*) over () as n, a::text || 'x' as s from t where id < 4
select * from v order by id
select pg_typeof(n), pg_typeof(s) from v limit 1
create or replace view v as select 1 as one
select * from v order by id
drop view v
drop view v
drop view if exists v
create index t_a on t (a)
create index on t (b, a desc)
create unique index t_bf on t (lower(b), f) where f is not null
create index t_a on t (a)
create index concurrently if not exists t_a on t (a)
drop index t_a
drop index t_a
alter table t add column h int not null default 5
select h from t where id = 1
alter table t add column h int
alter table t rename column h to hh
select hh from t where id = 1
alter table t drop column hh
alter table t drop column nosuch
alter table t rename to tt
select count(*) from tt
alter table tt rename to t
alter table u add constraint u_w unique (w)
insert into u (id, w) values (50, 3)
alter table u drop constraint u_w
insert into u (id, w) values (50, 3)
alter table nosuch add column a int
create table s as select id, b, c, a::bigint * 2 as n from t where id < 3
select * from s order by id
create table s2 (k text primary key, v jsonb, u uuid, by bytea, ts timestamptz default now(), tm time, dt date default current_date)
insert into s2 (k, v, u, by, tm) values ('a', '{"x": 1}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '\x01ff', '10:20:30.5')
select k, u, by, tm, ts > '2020-01-01', dt > '2020-01-01' from s2
insert into s2 (k) values ('a')
insert into s2 (k) values (null)
insert into s2 default values
insert into s2 (k, u) values ('b', 'zz')
insert into s2 (k, v) values ('b', '{')
insert into s2 (k, dt) values ('b', '2026-13-01')
select k from s2 where u = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'
create table multi (a int, b int, c text, primary key (a, b), unique (c))
insert into multi values (1, 1, 'x'), (1, 2, 'y')
insert into multi values (1, 1, 'z')
insert into multi values (2, 2, 'x')
insert into multi (a) values (5)
insert into multi values (1, 2, 'w') on conflict (a, b) do update set c = multi.c || excluded.c returning c
truncate multi
select count(*) from multi
drop table t
drop table u, s2, multi, s
drop table t
drop table t
drop table if exists t
drop table nosuch
create table bad (a nosuchtype)
create table bad (a int, a int)
create table bad (a int primary key, b int primary key)
create table bad (a varchar(0))
create table bad (a int, primary key (z))
create table gen (a int, b int generated always as (a * 2) stored)
insert into gen (a) values (4) returning b
insert into gen (a, b) values (4, 5)
create table ident (id bigint generated always as identity primary key, v text)
insert into ident (v) values ('a') returning id, pg_typeof(id)
create temp table x (a int)
refused: select distinct on (id) id from ident
refused: create schema other
create table arr (a int[])
refused: create sequence sq
refused: create materialized view mv as select 1
