-- The views of what the server does: names, order and types of their columns.
select * from pg_stat_activity where false
select * from pg_stat_ssl where false
select * from pg_stat_gssapi where false
select * from pg_stat_replication where false
-- Addresses.
select '127.0.0.1'::inet
select '127.0.0.1'::inet::text, '10.1.2.3/8'::inet::text, '::1'::inet::text
select host('10.1.2.3/8'::inet), host('fe80::1/64'), abbrev('10.1.2.3/32'::inet), text('10.1.2.3'::inet)
select masklen('10.1.2.3/8'::inet), family('::1'::inet), family('10.0.0.1')
select '10.1.2.3'::inet = '10.1.2.3/32', '10.1.2.3' <> '10.1.2.4'::inet, '10.1.2.3'::inet = '10.1.2.3/8'
select '10.1.2.3'::inet < '10.1.2.20', '9.9.9.9'::inet < '10.0.0.0', '255.0.0.1'::inet < '::1', '10.1.0.0/16'::inet < '10.1.0.0'
select a from (values ('10.0.0.9'::inet), ('9.0.0.1'), ('::1'), ('10.0.0.10')) as t(a) order by a
select a from (values ('10.0.0.9'::inet), ('9.0.0.1'), ('::1'), ('10.0.0.10')) as t(a) order by a desc
select '10.1.2'::inet
select 'host'::inet
select '10.1.2.3/33'::inet
select ''::inet
select '10.1.2.3'::inet::int
select 5::inet
select '10.1.2.3'::inet = 5
select '10.1.2.3'::inet in ('10.1.2.3', '10.1.2.4')
select coalesce(null::inet, '10.1.2.3')
-- Positions of the trail.
select '16/B374D848'::pg_lsn, '16/b374d848'::pg_lsn::text, '0/0'::pg_lsn
select '0/9'::pg_lsn < '0/10', '1/0'::pg_lsn > '0/FFFFFFFF', '0/a'::pg_lsn = '0/A'
select '0/10'::pg_lsn - '0/9'::pg_lsn, '0/9'::pg_lsn - '0/10'
select pg_wal_lsn_diff('1/0', '0/FFFFFFFF'), pg_wal_lsn_diff('0/0', '1/0')
select a from (values ('0/9'::pg_lsn), ('0/10'), ('1/0')) as t(a) order by a desc
select '4096'::pg_lsn
select 'x/0'::pg_lsn
-- Addresses of a Unix socket, and functions on the server itself.
select inet_client_port() is null, inet_server_addr() is null
select pg_postmaster_start_time() <= clock_timestamp(), pg_conf_load_time() <= clock_timestamp()
-- Statistics.
select * from pg_stat_database where false
create extension if not exists pg_stat_statements
