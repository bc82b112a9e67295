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
select * from pg_stat_all_tables where false
select * from pg_stat_user_tables where false
select * from pg_stat_sys_tables where false
select * from pg_stat_all_indexes where false
select * from pg_stat_user_indexes where false
select * from pg_stat_sys_indexes where false
select * from pg_statio_all_tables where false
select * from pg_statio_user_tables where false
select * from pg_statio_all_indexes where false
select * from pg_statio_user_indexes where false
select * from pg_statio_all_sequences where false
select * from pg_statio_user_sequences where false
select * from pg_stat_bgwriter where false
select * from pg_stat_wal where false
select * from pg_stat_wal_receiver where false
select * from pg_stat_archiver where false
select * from pg_stat_database_conflicts where false
select * from pg_stat_progress_analyze where false
select * from pg_stat_progress_basebackup where false
select * from pg_stat_progress_cluster where false
select * from pg_stat_progress_copy where false
select * from pg_stat_progress_create_index where false
select * from pg_stat_progress_vacuum where false
select * from pg_stat_subscription where false
select * from pg_stat_subscription_stats where false
select * from pg_stat_replication_slots where false
select * from pg_replication_slots where false
select * from pg_stat_recovery_prefetch where false
select * from pg_stat_user_functions where false
select * from pg_stat_xact_user_functions where false
select * from pg_file_settings where false
select * from pg_sequence where false
select * from pg_sequences where false
select * from pg_depend where false
select * from pg_description where false
select * from pg_shdescription where false
select * from pg_foreign_data_wrapper where false
select * from pg_foreign_server where false
-- A serial column's sequence, descriptions, and TABLE as a query.
create table numbered(id serial primary key, big bigint)
select * from pg_sequence where false
select relname, relkind from pg_class where relname = 'numbered_id_seq'
select 'numbered_id_seq'::regclass, pg_get_serial_sequence('numbered', 'id'), pg_get_serial_sequence('numbered', 'big')
select seqstart, seqincrement, seqmax, seqmin, seqcache, seqcycle from pg_sequence s join pg_class c on c.oid = s.seqrelid where c.relname = 'numbered_id_seq'
select data_type, max_value from pg_sequences where sequencename = 'numbered_id_seq'
select d.deptype, d.refobjsubid, t.relname from pg_depend d join pg_class c on c.oid = d.objid join pg_class t on t.oid = d.refobjid where c.relname = 'numbered_id_seq' and d.deptype = 'a'
insert into numbered(big) values (10), (20)
table numbered
table only numbered
table public.numbered order by id desc limit 1
select * from (table numbered) x where id = 1
select big from numbered union all (table numbered_none)
table numbered union all table numbered order by 1, 2
create table numbered_copy as table numbered
select count(*) from numbered_copy
create table numbered_too(id int primary key, big bigint)
insert into numbered_too table numbered
insert into numbered_too (big, id) (table numbered)
table numbered_too order by 1
explain table none
table
table numbered where id = 1
select obj_description('pg_catalog'::regnamespace, 'pg_namespace'), obj_description('pg_class'::regclass, 'pg_class')
select getdatabaseencoding()
select pg_table_is_visible('pg_class'::regclass), pg_table_is_visible('information_schema.tables'::regclass)
select '{}'::text is null, pg_typeof('=r/holdfast'::aclitem)
select 'rubbish'::aclitem
