select div(12345678901234567890,123), div(-7, 2), div(7.5, 2), div(1, 3)
select div(1, 0)
select (-2147483648)::int4 / (-1)
select (-32768)::int2 / (-1)::int2
select (-9223372036854775808)::int8 / (-1)
select (-2147483648)::int4 % (-1), 7 / (-2), 7::int2 / 2::int2
select '10e-400'::float8
select '10e400'::float8
select '1e-50'::float4
select 1e-50::float4
select 1e-400::float8
select '0e-400'::float8, '0.000'::float4
select exp(-1000)
select exp(1000)
select exp(1), exp(0)
select 1e-200::float8 * 1e-200::float8
select 1e-300::float8 / 1e300::float8
select power(1e-200::float8, 2)
select 2::float8 * 3, 1::float8 / 4
select '23:59:60.01'::time
select '23:59:60'::time, '24:00:00'::time, '12:30:60.5'::time
select 123abc
select 1.5e
select 12 abc
select '\x01'::bytea || '\x00', '\x00' || '\x01'::bytea, '\x01'::bytea || '\x02'::bytea
select quote_literal(e'\\'), quote_literal('a''b'), quote_literal(e'a\\''b')
create table c as select 'abcdef'::text as a, 'abcdef'::varchar(10) as b
select a::varchar(3), b::varchar(3), a::char(2) || '!' from c
select pg_typeof(1), pg_typeof('a'), pg_typeof(1.5), pg_typeof(interval '1 day')
