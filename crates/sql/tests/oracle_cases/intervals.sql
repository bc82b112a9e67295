select interval '1.5 weeks', interval '1 day 4 seconds', interval '1-2', interval '1 month ago', interval 'P1Y2M3DT4H5M6S'
select interval '1 day 1 day'
select interval '1 fortnight'
select '3000000000 days'::interval
select (interval '90' minute)::text, (interval '1:30' hour)::text, (interval '1-2' year to month)::text, (interval '2' day)::text
select '1 day'::interval + '2 hours'::interval, interval '1 mon' - interval '1 day', -interval '1 day 2 hours'
select interval '1 day' * 1.5, 2 * interval '1 mon', interval '1 mon' / 4, interval '10 days' / 3
select interval '1 day' / 0
select interval '1 mon' = interval '30 days', interval '1 day' < interval '25 hours', interval '1 day' <> interval '24 hours'
select interval '1 day' between interval '1 hour' and interval '2 days', interval '1 mon' in (interval '30 days')
select interval '1 mon' is distinct from interval '30 days'
select justify_hours('27 hours'), justify_days('35 days'), justify_interval('1 mon -1 hour')
select timestamp '2026-03-01 12:00' - timestamp '2026-02-28 13:30', timestamp '2026-02-28' - timestamp '2026-03-01 12:00'
select timestamptz '2026-03-01 12:00+00' - timestamptz '2026-02-28 13:30+01', date '2026-03-01' - timestamp '2026-02-01 06:00'
select time '12:00' - time '13:30', time '23:00' + interval '2 hours', time '01:00' - interval '26 hours', interval '1 hour' + time '05:00'
select interval '1 mon' + date '2026-01-31', interval '1 day' + timestamp '2026-01-01'
select extract(epoch from interval '1 year 2 mons 3 days 04:05:06.7'), extract(day from interval '40 days'), extract(hour from interval '27:30')
select extract(quarter from interval '5 mons'), extract(second from interval '1:02:03.5'), extract(year from interval '-30 mons')
select extract(dow from interval '1 day')
select interval '1 day'::text, '1 day'::text::interval, interval '25 hours'::time, time '04:05'::interval
create table i (id int primary key, v interval)
insert into i values (1, '1 mon'), (2, '30 days'), (3, '-1 hour'), (4, null), (5, '1 year 2 mons -3 days +04:05:06.7')
insert into i values (6, 'soon')
select * from i order by id
select id from i order by v, id
select id from i order by v desc nulls last, id desc
select id from i where v = '30 days' order by id
select id from i where v > interval '1 hour' order by id
select min(v), max(v), sum(v), avg(v), count(v) from i where id < 4
select count(*) from i group by v order by count(*), 1
select count(distinct v) from i
select sum(v), max(v) from i where false
create index on i (v)
select id from i where v = interval '1 mon' order by id
update i set v = v + interval '1 day' where id = 1
select v from i where id = 1
select coalesce(v, '0') from i where id = 4
refused: select distinct v from i
refused: create table k (v interval primary key)
refused: create table k (v interval unique)
refused: create unique index on i (v)
refused: create table k (v interval(3))
refused: select '1.2345 s'::interval(2)
select a.v + b.v from i a join i b using (v) where a.id = 1
select (interval '1 day', 1) = (interval '24 hours', 1)
select case interval '1 mon' when interval '30 days' then 'equal' else 'not' end, nullif(interval '1 day', interval '24 hours')
select count(*) over (partition by v), id from i order by id
select v, sum(v) over (order by id) from i order by id
