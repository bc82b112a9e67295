create table s (id int primary key, t text, v varchar(10), c char(6))
insert into s values (1, 'Hello', 'World', 'ab'), (2, 'hello', 'WORLD', 'AB'), (3, '100%', 'a_b', ''), (4, null, null, null), (5, 'héé', 'é', 'é')
select id from s where t like 'h%' order by id
select id from s where t ilike 'h%' order by id
select id from s where t like '%\%' order by id
select id from s where v like 'a\_b'
select id from s where t = 'hello'
select id from s where v = 'WORLD'
select id from s where c = 'ab'
select id from s where c = 'ab    '
select id from s where t < 'a' order by id
select id, t from s order by t, id
select id, length(t), length(v), length(c), upper(t), octet_length(c) from s order by id
select id, c from s order by id
select t || v, t || c, c || '|', concat(c, '|') from s order by id
select substring(t from 2 for 2), left(v, 1), right(t, 2) from s order by id
select v::text, c::text, t::varchar(2), t::char(3) from s order by id
select max(t), min(v), max(c)::text from s
select count(distinct lower(t)) from s
select coalesce(t, 'none'), coalesce(v, t) from s order by id
select t in ('hello', 'x'), v in ('World') from s order by id
select replace(t, 'l', ''), translate(t, 'el', 'ip'), strpos(t, 'l') from s order by id
select t ~ '^H', t ~* '^H', t !~ 'l+o' from s order by id
refused: select id from s where t similar to 'h%'
select id from s where t like 'h' || '%' order by id
select id from s where t like v
select t like 5 from s
update s set t = t || '!' where id = 1 returning t
update s set v = 'waytoolongvalue' where id = 1
update s set v = 'waytoolongvalue'::varchar(10) where id = 1 returning v
select t collate "C" from s where id = 1
select string_agg(t, ', ' order by id desc) from s
select string_agg(id, ',') from s
select string_agg(id::text, ',' order by id) from s
