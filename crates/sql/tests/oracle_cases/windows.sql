create table w (id int primary key, g int, v int, f float4, t text)
insert into w values (1, 1, 10, 0.1, 'a'), (2, 1, 20, 0.2, 'b'), (3, 1, 20, 0.7, 'c'), (4, 2, 5, null, 'd'), (5, 2, null, 1.5, 'e')
select id, first_value(v) over (order by g), last_value(v) over (order by g) from w order by id
select id, last_value(id) over (partition by g order by v) from w order by id
select id, nth_value(v, 2) over (partition by g order by v, id) from w order by id
select id, nth_value(v, 2) over (order by id rows between unbounded preceding and unbounded following) from w order by id
select id, ntile(2) over (order by id) from w order by id
select id, sum(v) over (order by v range between 10 preceding and current row) from w order by id
select id, sum(v) over (order by id rows between 1 preceding and 1 following) from w order by id
select id, count(*) over (order by v groups between 1 preceding and current row) from w order by id
select id, lag(v) over (order by id), lead(v, 2) over (order by id), lag(v, 1, 0) over (order by id) from w order by id
select id, rank() over (order by v), dense_rank() over (order by v desc) from w order by id
select id, last_value(t) over (order by v desc nulls last) from w order by id
select sum(f) from w
select sum(f) over (order by id) from w order by id
select avg(f) from w
select case when false then 1/0 else 1 end
