create table n (id int primary key, v numeric, w numeric(8,3))
insert into n values (1, 1.10, 1.1), (2, 1.1, 2.25), (3, -5, -0.001), (4, 100000000000000000000.5, 99999.999), (5, null, null), (6, 0.000000001, 0)
select v, w, v + w, v - w, v * w, v / nullif(w, 0) from n order by id
select v from n order by v, id
select v from n order by v desc, id desc
select sum(v), avg(v), min(v), max(v), count(v), sum(w), avg(w) from n
select v, count(*) from n group by v order by v
select id from n where v = 1.1 order by id
select id from n where v > 1 and w between 1 and 3 order by id
select id from n where v in (1.1, -5) order by id
select v::int, v::float8, v::text, v::numeric(10,1) from n where id = 1
select v::int from n where id = 4
select round(v, 1), trunc(v), ceil(v), floor(v), abs(v), -v from n where id in (1, 3) order by id
select coalesce(v, 0), greatest(v, w), case when v > 1 then v else 0 end from n order by id
insert into n values (7, 'abc', 1)
insert into n values (7, 1, 100000)
insert into n values (7, 1e5, 1e4) returning v, w
insert into n values (8, 12.3456789, 12.3456789) returning v, w
update n set v = v * 1.1, w = w + 0.0005 where id = 2 returning v, w
select sum(id), avg(id), sum(id::bigint) from n
select 1.0 = 1.00, 1.10::text, 0.0, 00.50, 1e-3, 5., .5
select 12345678901234567890 * 98765432109876543210, 1.0 / 7, 22 / 7.0, 1000000 / 3.0
select 3.0 % 2, mod(-7.5, 2), div(7, 2), power(2::float8, 0.5::float8)
select max(v) over (order by id) from n where id < 4
select distinct w from n order by w
refused: select distinct v from n
refused: create table k (a numeric primary key)
