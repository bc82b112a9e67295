-- Arithmetic
select 1 + 1, 7 / 2, -7 / 2, 7 % 3, -7 % 3, 2 ^ 10
select 1 / 0
select 1.5 / 0
select 5 % 0
select 2147483647 + 1
select 2147483647::bigint + 1
select 9223372036854775807 + 1
select 30000::smallint + 10000::smallint
select -2147483648 - 1
select 1.5 + 2.25, 1.50 * 2, 10 / 4.0, 1 / 3.0, 7.5 % 2, -1.5
select 0.1 + 0.2 = 0.3, 0.1::float8 + 0.2::float8 = 0.3::float8
select 1e10, 1.5e-3, 123456789012345678901234567890
select 1::float8 / 3, 1e15::float8, 1e-5::float8, 100000::float8, 0.1::real, 1e20::float8
select 3 & 5, 3 | 5, 3 # 5, 1 << 4, 256 >> 2, ~5
select abs(-5), abs(-5.5), abs(-2.5::float8), round(2.5), round(-2.5), round(2.567, 2), trunc(2.567, 1), ceil(1.2), floor(-1.2), sign(-3)
select round(2.5::float8), round(3.5::float8), ceil(1.2::float8), trunc(-1.7::float8)
select sqrt(16), power(2, 3), exp(0), ln(1), mod(7, 3), mod(7.5, 2)
select sqrt(-1)
select ln(0)
select power(0, -1)
select greatest(1, 3, 2), least(1, null, 2), greatest('a', 'b'), greatest(1.5, 2), least(null, null)
select coalesce(null, 1), coalesce(null, 'a'), nullif(1, 1), nullif(1, 2), coalesce(1, 2.5)
select 1 = 1.0, 1 < 2, 2 <> 2, 'a' < 'b', true and null, false and null, true or null, not null::boolean
select 1 = 'a'
select 'a' = 1::text
select 1::text = 1
select true = 't', false = 'no', true::int, 1::boolean, 'yes'::boolean, true::text
select 1 is distinct from null, null is not distinct from null, 1 is distinct from 1
select 1 between 0 and 2, 'b' between 'a' and 'c', 3 not between 1 and 2, 2.5 between 2 and 3
select 1 in (1, 2), 3 in (1, 2), null in (1), 1 not in (1, null), 1.0 in (1, 2), 'a' in ('a', 'b')
select 1 in ('x')
select case when 1 = 1 then 'a' else 'b' end, case 2 when 1 then 'one' when 2 then 'two' end, case when false then 1 end
select case when true then 1 else 'a' end
select (1, 2) = (1, 2), (1, 2) <> (1, 3), (1, 2) < (1, 3)
select null is null, 1 is not null, true is true, null::boolean is unknown, false is not true
select 1 as a, 'x' as "B c", 2 "d"
select 'a' || 'b', 'a' || 1, 1 || 'a', 'a' || null, 'x' || true, 'v' || 1.50
select 1 || 2
select -'5'
select - 5, +5, -(-5), 2 - -3
select 'it''s', E'a\tb\\c', 'a' 'b'
select $$dollar$$, $q$it's$q$
-- Casts
select '12'::int, ' 12 '::int, '1.5'::numeric, '1e3'::float8, 'abc'::varchar(2), 'ab'::char(4), 12::text
select 'abc'::int
select '1.5'::int
select '3000000000'::int
select 3000000000::int
select 70000::smallint
select 2.5::int, 3.5::int, -2.5::int, 2.5::float8::int, 3.5::float8::int, 1.99::int
select 123.456::numeric(5,2), 99.995::numeric(5,2), 0::numeric(3,2)
select 12345::numeric(5,2)
select ''::int
select 'x'::boolean
select '2026-02-30'::date
select 'yesterdayish'::date
select '2026-11-20'::date, '2026-11-20 19:30:00.5'::timestamp, '2026-11-20 19:30:00+02'::timestamptz, '19:30'::time
select '2026-11-20'::date::timestamp, '2026-11-20 19:30:00'::timestamp::date, '2026-11-20 10:00:00'::timestamp::text
select date '2026-01-31' + 1, date '2026-03-01' - 1, date '2026-03-01' - date '2026-02-01'
select timestamp '2026-01-31 10:00:00' + interval '1 month', timestamp '2026-01-31 10:00:00' - interval '1 day 2 hours', date '2026-01-31' + interval '1 month'
select extract(year from date '2026-11-20'), extract(dow from date '2026-11-20'), extract(epoch from timestamp '2026-11-20 00:00:00'), extract(second from timestamp '2026-11-20 10:20:30.25'), extract(week from date '2027-01-01'), extract(isoyear from date '2027-01-01'), extract(quarter from date '2026-11-20'), extract(doy from date '2026-11-20')
select extract(century from date '2000-01-01'), extract(decade from date '1999-01-01'), extract(hour from timestamp '2026-11-20 10:20:30'), date_part('minute', timestamp '2026-11-20 10:20:30')
select date_trunc('month', timestamp '2026-11-20 10:20:30'), date_trunc('hour', timestamp '2026-11-20 10:20:30'), date_trunc('week', timestamp '2026-11-20 10:20:30'), date_trunc('quarter', timestamp '2026-11-20 10:20:30')
select date_trunc('nonsense', timestamp '2026-11-20 10:20:30')
select date '2026-01-01' < date '2026-01-02', timestamp '2026-01-01 00:00:00' = date '2026-01-01'
select 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid, '\x00ff'::bytea, '{"a": 1}'::json
select 'zz'::uuid
select '{a'::json
select cast('5' as integer), cast(5 as varchar(10)), int '5', text 'a'
select 1::bigint, 1::smallint, 1.0::real, 1::numeric, 'a'::name
select 5::oid, 'int4'::regtype, 23::regtype, 'integer'::regtype::oid, 25::regtype::text
-- Strings
select lower('ABC'), upper('abc'), length('héllo'), char_length('abc'), octet_length('hé'), initcap('hello world')
select substring('hello' from 2 for 3), substring('hello', 2), substr('hello', -1, 3), substring('hello' from 10), left('hello', 2), left('hello', -2), right('hello', 2), right('hello', -2)
select substring('hello' from 2 for -1)
select position('l' in 'hello'), strpos('hello', 'z'), replace('hello', 'l', 'L'), translate('12345', '143', 'ax'), repeat('ab', 3), reverse('abc')
select trim('  a  '), ltrim('  a'), rtrim('a  '), trim(both 'x' from 'xxaxx'), trim(leading 'x' from 'xxaxx'), btrim('xyaxy', 'xy')
select lpad('7', 3, '0'), rpad('ab', 4), lpad('abcdef', 3), split_part('a,b,c', ',', 2), split_part('a,b,c', ',', -1), split_part('a,b', ',', 5)
select split_part('a', ',', 0)
select concat('a', 1, null, true), concat_ws('-', 'a', null, 'b'), overlay('abcdef' placing 'ZZ' from 2 for 3), ascii('a'), chr(65), md5('abc')
select starts_with('hello', 'he'), to_hex(255), encode('abc'::bytea, 'hex'), encode('abc'::bytea, 'base64'), quote_literal('it''s'), quote_ident('A b')
select 'abc' like 'a%', 'ABC' like 'a%', 'ABC' ilike 'a%', 'a_c' like 'a\_c', 'abc' like 'a\_c', 'a*c' like 'a*c', 'abc' not like '%z%', 'x' like null
select 'a%' like 'a!%' escape '!', 'abc' like '_b_', 'abc' like 'ab', '' like '%'
select 'abc' ~ '^a', 'abc' !~ 'z', 'ABC' ~* 'b', 'abc' ~ 'b|z'
select 5 like '5'
select lower(5)
select nosuchfunction(1)
select nosuch
select nosuch.a
select * from nosuch
select current_database(), current_schema(), current_schemas(true)
select pg_typeof(1), pg_typeof('a'), pg_typeof(1.5), pg_typeof(null), pg_typeof(1 > 2)
select version() like 'PostgreSQL 15%'
select count(*) from (select random() r) x where r >= 0 and r < 1
select 1 where false
select true, false, null
values (1, 'a'), (2, 'b')
values (1, 2), (3)
select * from (values (1, 'a'), (2, null)) as t(n, s) order by n desc
select 1 union select 2 union all select 2 order by 1
select 1, 'a' union select 2, null order by 1
select 1 union select 'a'
select 1 intersect select 1
select 1 except select 1
select 1 union all select 2.5 order by 1
select null union select 1 order by 1
select 1 limit 0
select generate_series from generate_series(1, 3)
select * from generate_series(1, 10, 4) as g(n)
select n from generate_series(3, 1, -1) n
select * from generate_series(1, 5) g where g > 3
select exists(select 1), exists(select 1 where false), (select 1), (select 1 where false)
select (select 1, 2)
select array(select 1)::text
select array[1, 2]
refused: select row(1, 2)
refused: select to_char(now(), 'YYYY')
select 1 +
selec 1
select 1 from
-- The extremes of int.
select right('aeb', -2147483648), right('aeb', -2147483647), right('aeb', 2147483647), left('aeb', -2147483648), left('aeb', 2147483647)
select round(1.5, -2147483648), trunc(1.5, -2147483648), trunc(15.5, -1), round(1.5, 2147483647) = 1.5
select repeat('a', -2147483648), lpad('a', -2147483648), rpad('a', -2147483648), substr('abc', -2147483648), substr('abc', -2147483648, 2147483647), substr('abc', 2, 2147483647)
select split_part('a,b', ',', -2147483648), split_part('a,b', ',', 2147483647), overlay('abc' placing 'x' from 1 for -2147483648)
select overlay('abc' placing 'x' from 2147483647 for 2147483647)
select repeat('a', 2147483647)
select lpad('a', 2147483647)
