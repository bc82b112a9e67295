create table g (k text, v int, ts timestamp)
insert into g values ('a', 1, '2026-01-01 10:00:00'), ('a', 2, '2026-01-01 11:00:00'), ('b', 3, '2026-02-01 00:00:00'), (null, 4, null)
select k, sum(v) from g group by k order by k
select k, sum(v) from g group by k order by 2 desc, 1
select k || 'x', count(*) from g group by k || 'x' order by 1
select upper(k) as u, count(*) from g group by u order by u
select upper(k), k from g group by upper(k)
select k from g having count(*) > 1
select sum(v) from g having count(*) > 1
select date_trunc('month', ts), count(*) from g group by 1 order by 1
select k, v from g order by v desc limit 2 offset 1
select k, v from g order by v fetch first 1 row only
select k, v from g order by v offset 3
select k from g limit -1
select v from g limit all
select v from g order by v limit null
select sum(v + 1), sum(v) + 1, sum(v) * 2.5, avg(v), avg(v)::int, count(*) * 2 from g
select sum(v) from g where false
select count(*) from g where false group by k
select max(v) - min(v), max(k) || '!' from g
select sum(case when k = 'a' then 1 else 0 end), count(case when v > 2 then 1 end) from g
select k, (select max(v) from g h where h.k = g.k) from g order by v
select sum(count(*)) from g
select k, sum(v) over (partition by k) from g order by v
select k, count(*) from g group by k having sum(v) > 3 order by k nulls first
select coalesce(k, 'none') c, count(*) from g group by coalesce(k, 'none') order by c
select g.k, count(*) from g group by g.k order by g.k
select g.* from g where v = 1
select x.k from g x where x.v = 1
select g.k from g x
select k, k from g where v = 1
select k as v, v as k from g where g.v = 1
select 'const', count(*) from g group by 1
select v % 2 = 0 as even, count(*) from g group by even order by even
select distinct k, v > 2 from g order by 1, 2
select count(*) from g a, g b where a.v = b.v
select k from g union select 'z' order by k desc nulls last
(select v from g order by v limit 1) union all (select v from g order by v desc limit 1)
select * from (select v from g union all select 10) x order by v desc limit 2
select v from g where v = (select max(v) from g)
refused: select v from g where v > all (select 1)
select v from g where v = any (select 2)
select v from g where v = any ('{1,3}') order by v
select v from g where k = any ('{a,"b"}') order by v
select v from g where v in (select v from g where k = 'a') order by v
