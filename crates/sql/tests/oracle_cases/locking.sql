-- Locking clauses: what they are allowed with, and that nothing of them shows in the result.
create table t (id int primary key, a int, b text)
create table u (id int primary key, t int, c text)
create view v as select a from t
insert into t values (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z')
insert into u values (1, 1, 'p'), (2, 2, 'q')
select * from t order by id for update
select b from t where id = 2 for no key update nowait
select b from t order by id limit 2 for share skip locked
select b from t order by id limit null for share skip locked
select b from t limit 0 for share skip locked
select b from t order by id for key share limit 1
select b, c from t join u on t.id = u.t order by 1 for update
select b, c from t x join u y on x.id = y.t order by 1 for update of x
select b, c from t join u on t.id = u.t order by 1 for update of t nowait for share of u
select b, c from t left join u on t.id = u.t order by 1 for update of t
select b, c from t left join u on t.id = u.t order by 1 for update
select b, c from t left join u on t.id = u.t order by 1 for update of u
select b, c from t right join u on t.id = u.t order by 1 for update of u
select b, c from t full join u on t.id = u.t order by 1 for update of u
select count(*) from t for update
select 1 from t having true for update
select a from t group by a for share
select distinct a from t for share
select rank() over (order by a) from t for update
select a from t union select t from u for update
values (1) for update
select 1 for update
select 1 from t for update of u
select 1 from t x for update of t
select 1 from t for update of public.t
select g from generate_series(1, 2) g for update
select 1 from t, generate_series(1, 2) g for update of g
with c as (select 1 as n) select n from c for update
with c as (select 1 as n) select n from c, t for update of c
select z from (values (1)) q(z) for update
refused: select a from (select a from t) s for update
refused: select a from v for update
refused: select 1 from t where id in (select id from u for update)
refused: select b from t order by id limit 1 offset 1 for update skip locked
refused: with c as (select a from t for update) select a from c
select 1 from t for update of
select 1 from t for no update
select pg_advisory_lock(1), pg_try_advisory_lock(1, 2), pg_advisory_unlock(1), pg_advisory_unlock_all()
select pg_advisory_lock(null), pg_try_advisory_lock(null, 1)
select pg_advisory_lock(7) is null, pg_typeof(pg_advisory_lock(7))
select pg_try_advisory_xact_lock_shared(1::smallint, 2), pg_advisory_xact_lock('5')
select pg_advisory_lock(1.5)
select pg_advisory_lock(3000000000, 1)
select pg_advisory_lock(1::oid)
select * from pg_advisory_unlock_all()
