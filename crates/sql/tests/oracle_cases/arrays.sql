-- Input and output
select '{1, 2 ,3}'::int[], '{a,"b c",null}'::text[], '{{1,2},{3,4}}'::int[], '{}'::int[], '[0:1]={1,2}'::int[]
select '{{},{}}'::text[]
select '{1,}'::int[]
select '{1,a}'::int[]
select '{1.50,2}'::numeric(5,1)[], '{t,f}'::bool[], '{2026-01-02}'::date[]
-- ANY and ALL
select 33 = any(null::int[]), 33 = any('{33,1}'::int[]), 1 = any('{2,null}'::int[]), 1 <> all('{2,3}'::int[]), 1 = any('{}'::int[])
select 1.0 = any('{1.00}'::numeric[]), 1.5::float8 = any('{1.5}'::float8[]), 'a' = any('{a,b}'::text[])
-- Comparison
select '{1.0}'::numeric[] = '{1.00}'::numeric[], '{10}'::int[] > '{9}'::int[], '{1}'::int[] < '{1,0}'::int[], '{1,null}'::int[] > '{1,2}'::int[]
-- Constructors and subscripts
select array[1,2,3], array['a','b c'], array[[1,2],[3,4]], array[1,null], array[1,2.5]
select (array[1,2,3])[2], (array[1,2,3])[4], ('[0:1]={5,6}'::int[])[0]
-- Functions
select array_length('{1,2}'::int[], 1), array_upper('[0:1]={1,2}'::int[], 1), array_lower('[0:1]={1,2}'::int[], 1), cardinality('{{1,2},{3,4}}'::int[]), array_ndims('{{1}}'::int[]), array_length('{}'::int[], 1), cardinality('{}'::int[])
select array_position('{1,2,3}'::int[], 2), array_to_string('{1,2,null}'::int[], ',')
select * from unnest('{1,2,null}'::int[])
select * from unnest('{1.5,2}'::float8[])
select * from unnest(null::int[])
-- Columns
create table a (id int primary key, n int[], t text[] not null default '{}', v varchar(3)[], q numeric(5,2)[])
insert into a (id, n) values (1, '{1,2}'), (2, '{10}'), (3, null), (4, '{9}')
insert into a values (5, array[3,4], '{x,y}', '{abc}', '{1.5}')
insert into a values (6, '{1}', '{}', '{abcd}')
select * from a order by id
select id from a order by n, id
select id from a where n = '{1,2}'
select id from a where n = array[10]
select id, n[1] from a where 2 = any(n)
