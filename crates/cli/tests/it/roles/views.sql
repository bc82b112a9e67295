-- Roles and grants as information_schema and the functions on aclitem show them; REASSIGN OWNED and DROP OWNED of databases; TABLE.
create role vw_readers;
create role vw_app login;
create role vw_plain;
create role vw_admin;
grant vw_readers to vw_app;
grant vw_readers to vw_admin with admin option;
create table vw_t(id serial primary key, note text);
create table vw_u(id bigserial primary key, a int);
create view vw_v as select note from vw_t;
insert into vw_t(note) values ('a'), ('b');
grant select on vw_t to vw_app;
grant update (note), insert (note) on vw_t to vw_app with grant option;
grant insert on vw_t to public;
grant usage on sequence vw_t_id_seq to vw_app with grant option;
grant select, usage on sequence vw_u_id_seq to public;
select * from information_schema.enabled_roles where role_name not like 'pg!_%' escape '!' order by 1;
select * from information_schema.applicable_roles where role_name not like 'pg!_%' escape '!' order by 1, 2;
select * from information_schema.applicable_roles where role_name = 'pg_database_owner';
select * from information_schema.administrable_role_authorizations order by 1, 2;
select * from information_schema.role_table_grants where table_name like 'vw!_%' escape '!' order by 1, 2, 5, 6;
select * from information_schema.table_privileges where table_name like 'vw!_%' escape '!' order by 1, 2, 5, 6;
select * from information_schema.role_column_grants where table_name = 'vw_t' order by 1, 2, 6, 7;
select * from information_schema.column_privileges where table_name = 'vw_t' order by 1, 2, 6, 7;
select * from information_schema.usage_privileges where object_type = 'SEQUENCE' order by 1, 2, 5;
select * from information_schema.role_usage_grants where object_type = 'SEQUENCE' order by 1, 2, 5;
select * from information_schema.information_schema_catalog_name;
select * from information_schema.sequences where sequence_name like 'vw!_%' escape '!' order by 3;
set role vw_app;
select * from information_schema.enabled_roles order by 1;
select * from information_schema.applicable_roles order by 1, 2;
select * from information_schema.administrable_role_authorizations order by 1, 2;
select * from information_schema.role_table_grants where table_name like 'vw!_%' escape '!' order by 1, 2, 5, 6;
select * from information_schema.table_privileges where table_name like 'vw!_%' escape '!' order by 1, 2, 5, 6;
select * from information_schema.role_column_grants where table_name = 'vw_t' order by 1, 2, 6, 7;
select * from information_schema.usage_privileges where object_type = 'SEQUENCE' order by 1, 2, 5;
select * from information_schema.role_usage_grants where object_type = 'SEQUENCE' order by 1, 2, 5;
select pg_has_role('vw_readers', 'member'), pg_has_role('vw_readers', 'usage'), pg_has_role('vw_plain', 'member');
select sequence_name from information_schema.sequences order by 1;
table vw_t;
table vw_u;
set role vw_admin;
select * from information_schema.administrable_role_authorizations order by 1, 2;
select pg_has_role('vw_readers', 'usage with admin option'), pg_has_role('vw_readers', 'member with grant option');
table vw_t;
reset role;
select pg_has_role('vw_app', 'vw_readers', 'usage'), pg_has_role('vw_plain', 'vw_readers', 'member');
select pg_has_role('vw_app'::regrole, 'vw_readers'::regrole, 'MEMBER'), pg_has_role('vw_app'::regrole, 'vw_readers', 'USAGE');
select pg_has_role('vw_app', 'vw_readers'::regrole, 'member with admin option, usage');
select pg_has_role('vw_app', 'vw_none', 'usage');
select pg_has_role('vw_none', 'vw_app', 'usage');
select pg_has_role('vw_app', 'vw_readers', 'select');
select pg_has_role(null::name, 'vw_readers', 'member');
select a.grantor::regrole, a.grantee = 0, a.privilege_type, a.is_grantable from aclexplode((select relacl from pg_class where relname = 'vw_t')) a;
select c.relname, pg_get_userbyid(a.grantee), a.privilege_type, a.is_grantable from pg_class c, aclexplode(c.relacl) a where c.relname like 'vw!_%' escape '!' and a.grantee <> 0 order by 1, 2, 3;
select c.relname, x from pg_class c cross join lateral aclexplode(c.relacl) as a(g, e, x, o) where c.relname = 'vw_t' and not o order by 1, 2;
select privilege_type from aclexplode(acldefault('n', 10));
select * from aclexplode(null);
select makeaclitem('vw_app'::regrole, 'vw_plain'::regrole, 'SELECT', true), makeaclitem(0, 10, 'usage', false);
select makeaclitem(0, 10, 'dance', false);
select pg_typeof(makeaclitem(0, 10, 'usage', false));
select aclcontains(relacl, 'vw_app=r/holdfast'), aclcontains(relacl, 'vw_app=r*/holdfast'), aclcontains(relacl, '=a/holdfast') from pg_class where relname = 'vw_t';
select aclcontains('{vw_app=rw/holdfast}'::aclitem[], 'vw_app=w/holdfast'::aclitem), aclcontains(null, 'vw_app=w/holdfast');
select sequencename, data_type, start_value, min_value, max_value, increment_by, cycle, cache_size from pg_sequences where sequencename like 'vw!_%' escape '!' order by 1;
select relname, has_sequence_privilege('vw_app', oid, 'usage'), has_sequence_privilege('vw_app', oid, 'update') from pg_class where relkind = 'S' and relname like 'vw!_%' escape '!' order by 1;
select pg_get_serial_sequence('vw_t', 'id'), pg_get_serial_sequence('vw_t', 'note');
select relname, relkind, relacl from pg_class where relkind = 'S' and relname like 'vw!_%' escape '!' order by 1;
\dp vw_*
\ds vw_*
\d vw_t_id_seq
\d vw_u_id_seq
\dn+
\db
\dx
\dew
\des
\dO
\dRs
\dconfig statement_timeout
\du vw_*
\dg+ vw_*
alter role vw_app set statement_timeout = '5s';
\drds vw_*
alter default privileges for role vw_app grant select on tables to vw_plain;
\ddp
table vw_t order by id desc limit 1;
select note from vw_t union all table vw_v order by 1;
create table vw_copy as table vw_t;
select count(*) from vw_copy;
insert into vw_u(a) select 1 union select 2;
with x as (table vw_u) select count(*) from x;
select * from (table vw_u) y order by 1;
prepare vw_p as table vw_t;
execute vw_p;
begin;
declare vw_c cursor for table vw_t;
fetch all from vw_c;
rollback;
table vw_none;
create role vw_owner createdb;
create database vw_db owner vw_owner;
grant connect on database vw_db to vw_plain;
grant create on database vw_db to vw_app;
set role vw_owner;
grant temporary on database vw_db to vw_admin;
reset role;
select pg_get_userbyid(datdba), datacl from pg_database where datname = 'vw_db';
begin;
reassign owned by vw_owner to vw_plain;
rollback;
select pg_get_userbyid(datdba), datacl from pg_database where datname = 'vw_db';
reassign owned by vw_owner to vw_plain;
select pg_get_userbyid(datdba), datacl from pg_database where datname = 'vw_db';
drop owned by vw_app;
select pg_get_userbyid(datdba), datacl from pg_database where datname = 'vw_db';
drop owned by vw_plain;
select pg_get_userbyid(datdba), datacl from pg_database where datname = 'vw_db';
drop role vw_owner;
drop role vw_app;
drop role vw_plain;
drop database vw_db;
drop role vw_plain, vw_admin, vw_readers;
drop view vw_v;
drop table vw_t, vw_u, vw_copy;
