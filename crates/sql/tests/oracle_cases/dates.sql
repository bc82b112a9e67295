create table d (id int primary key, d date, t time, ts timestamp, tz timestamptz, p timestamp(0))
insert into d values (1, '2026-02-28', '23:59:59.5', '2026-02-28 23:59:59.5', '2026-02-28 23:59:59.5+01', '2026-02-28 23:59:59.5')
insert into d values (2, '20260101', '00:00', '2026-01-01', '2026-01-01 00:00:00Z', '2026-01-01T12:00:00.4')
insert into d (id, d) values (3, '2026-01-32')
insert into d (id, ts) values (3, 'nonsense')
insert into d (id, d) values (3, 5)
select * from d order by id
select d + 1, d - 1, d - date '2026-01-01', ts + interval '36 hours', tz - interval '1 week', d + interval '1 year' from d order by id
select ts::date, ts::time, tz::date, d::timestamp, ts::timestamptz, tz::timestamp from d order by id
select d < ts, ts < tz, d = '2026-01-01', d > '2026-01-15' from d order by id
select min(d), max(ts), count(distinct d) from d
select extract(day from d), extract(month from ts), extract(hour from t), extract(epoch from tz), extract(microseconds from ts) from d order by id
select date_part('year', d), date_trunc('day', ts), date_trunc('year', tz), date_trunc('month', d) from d order by id
select d::text, ts::text, tz::text, t::text, d || '' from d order by id
select id from d where d between '2026-02-01' and '2026-02-28'
select id from d where ts >= '2026-01-01' and ts < '2026-01-02 12:00'
select id from d order by d desc
select tz at time zone 'UTC', ts at time zone 'UTC' from d order by id
select make_date(2026, 2, 28), to_timestamp(0)
select extract(nosuch from d) from d
select d + '1 day' from d order by id
select ts - '1 hour' from d order by id
select now() - now() < interval '1 second'
select now() = current_timestamp, current_date = now()::date, localtimestamp = now()::timestamp
select pg_typeof(now()), pg_typeof(current_date), pg_typeof(localtimestamp), pg_typeof(d + 1), pg_typeof(ts + interval '1 day') from d where id = 1
select ts - ts from d
create table i (a interval)
