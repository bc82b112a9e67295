select '{"bb":1,"a":2 , "a":3}'::jsonb, '[1,2.50,1e3]'::jsonb, '"\u00e9"'::jsonb, ' [ ] '::jsonb
select '{"bb":1,"a":2 , "a":3}'::json
select '{"a":1, "b":2}'::jsonb = '{"b":2,"a":1}'::jsonb, '1.0'::jsonb = '1.00'::jsonb, '1'::jsonb = '"1"'::jsonb
select '[]'::jsonb < 'null'::jsonb, '{}'::jsonb > '[1,2]'::jsonb, '[1,2]'::jsonb > '[3]'::jsonb, '"b"'::jsonb > '"a"'::jsonb
select '{"a":1}'::json = '{"a":1}'::json
select '{"a":1}'::json::jsonb, '{"b":1,  "a":2}'::jsonb::json, '{"b":1,  "a":2}'::json::text
select '{a}'::jsonb
select '"\u0000"'::jsonb
create table j (id int primary key, v jsonb)
insert into j values (1, '{"b":1,"a":2}'), (2, '{"a":2,  "b":1.0}'), (3, 'null'), (4, null), (5, '[1]')
select id from j where v = '{"a":2,"b":1}' order by id
select count(*) from j group by v order by 1
select count(distinct v) from j
select id from j order by v, id
select id from j where v in ('[1]', 'null') order by id
select a.id, b.id from j a join j b using (v) order by 1, 2
refused: select distinct v from j
refused: create table k (v jsonb primary key)
