-- WITH before INSERT, UPDATE and DELETE.
create table t (id int primary key, a int, b text)
create table u (id serial primary key, t int, c varchar(5) default 'none')
with x as (values (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z')) insert into t select * from x
with x(i, v) as (values (4, 40)), y as (select i + 1 as i, v + 1 as v from x) insert into t (id, a) select i, v from y returning id, a, b
with recursive r(n) as (select 6 union all select n + 1 from r where n < 9) insert into t (id, a) select n, n * 10 from r
with x as (select 9 as id, 99 as a) insert into t (id, a) select id, a from x on conflict (id) do update set a = excluded.a returning id, a
with x as (select 'first' as c) insert into u (t, c) select 1, c from x returning id, t, c
with x as (select 'much too long' as c) insert into u (t, c) select 1, c from x
with x as (select 1 as t) insert into u (t) select t from x returning c
with x as (select 7 as n) insert into t (id, a) values ((select n + 100 from x), 1) returning id
with x as (select id from t where a > 60) update t set b = 'much' where id in (select id from x)
with x as (select id, a * 2 as twice from t where id < 3) update t set a = x.twice from x where x.id = t.id returning t.id, t.a
with x as (select max(a) as most from t) update t set b = 'most' where a = (select most from x) returning id
with t as (select 1 as id) update t set a = 0 where id in (select id from t) returning id, a
with x as (select id from t where id > 5) delete from t where id in (select id from x)
with x as (select 3 as id) delete from t using x where t.id = x.id
with x as (select id from t) select count(*) from x
with x as (select 1) insert into t select * from missing
with x as (select 1) update missing set a = 1
select * from t order by id
select * from u order by id
