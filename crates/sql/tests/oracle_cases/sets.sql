select 1 union (select 1 union all select 1)
select 3 except (select 1 union all select 3)
(select 1 union all select 1) union all (select 2 union all select 2)
select 1 union all (select 2 union select 2 order by 1 limit 1)
select 1 union all ((select 2 union all select 2))
select 1 intersect (select 1 union all select 2)
create table p (a int)
insert into p select 1 except (select 1 union select 2)
insert into p select 5 union (select 5 union all select 6)
select a from p order by a
(select 4 fetch first 1 row only) union all select 5
-- a volatile function in FROM or WITH is computed once for each row
select r = r from (select random() as r) x
select a.r = b.r from (select random() as r) a, (select 1) c, lateral (select a.r as r) b
with x as (select random() as r) select r = r from x
with x as (select random() as r) select a.r = b.r from x a, x b
with x as not materialized (select random() as r) select a.r = b.r from x a, x b
select count(*) from (select gen_random_uuid() as u) x where u = u
