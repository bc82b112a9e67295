-- Constraints afterwards: existing rows are checked.
create table ap (id int primary key, k int unique, n text)
create table ac (id serial primary key, pid int, q int, s varchar(5))
insert into ap values (1, 10, 'a'), (2, 20, 'b')
insert into ac (pid, q, s) values (1, 1, 'x'), (2, 2, 'y'), (null, 3, null)
alter table ac add constraint ac_p foreign key (pid) references ap (id) on delete cascade deferrable initially deferred
alter table ac add constraint ac_p foreign key (pid) references ap (id)
alter table ac add foreign key (q) references ap (id)
delete from ac where q = 3
alter table ac add foreign key (q) references ap
alter table ac add foreign key (q) references ap (n)
alter table ac add foreign key (q) references ap (nosuch)
alter table ac add foreign key (nosuch) references ap (id)
alter table ac add foreign key (q, pid) references ap (id)
select conname, contype, condeferrable, condeferred, convalidated from pg_constraint where conrelid in ('ac'::regclass, 'ap'::regclass) order by 1
select c.conname, pg_get_constraintdef(c.oid) from pg_constraint c where c.contype = 'f' order by 1
insert into ac (pid, q) values (1, 9)
alter table ac add check (q > 0)
alter table ac add constraint big check (q > 1)
alter table ac add constraint big check (q > 1) not valid
insert into ac (pid, q) values (1, 1)
alter table ac validate constraint big
alter table ac drop constraint big
alter table ac validate constraint big
alter table ac drop constraint nosuch
alter table ac drop constraint if exists nosuch
alter table ac rename constraint ac_p to ac_parent
alter table ac rename constraint nosuch to x
select conname from pg_constraint where conrelid = 'ac'::regclass order by 1
drop table ap
alter table ap drop constraint ap_pkey
alter table ac drop constraint ac_parent, drop constraint ac_q_fkey
alter table ap drop constraint ap_pkey
select id, k from ap order by k
alter table ap add primary key (id)
insert into ap values (1, 40, 'twice')
insert into ap values (null, 40, 'null')
alter table ap alter column id drop not null
alter table ap add constraint ap_n unique (n)
insert into ap values (3, 50, 'a')
alter table ap drop constraint ap_n
insert into ap values (3, 50, 'a')
alter table ap add constraint ap_n unique (n)
-- Columns.
create table co (a int, b text default 'x', c numeric(8,2), d timestamp, e int not null default 5)
insert into co values (1, '10', 1.25, '2026-01-02 03:04:05', 1), (2, '20', null, null, 2)
alter table co alter column a set not null
alter table co alter column c set not null
alter table co alter column a drop not null
insert into co (b) values ('30')
select * from co order by e, a
alter table co alter column e drop default
insert into co (a) values (9)
alter table co alter column e set default 7
alter table co alter column a set default 'abc'
insert into co (a) values (9)
select a, e from co order by e, a
alter table co alter column b type int
alter table co alter column b type int using b::int
delete from co where a = 9
alter table co alter column b drop default, alter column b type int using b::int
select b, b + 1 from co order by b
alter table co alter column b type bigint
alter table co alter column b type text
select b || '!' from co order by b
alter table co alter column b type varchar(1)
alter table co alter column b type varchar(2)
alter table co alter column c type int
select c from co order by a
alter table co alter column d type date
select d from co order by a
alter table co alter column nosuch type int
alter table co alter column a type smallint, alter column e set default 9, add column f int default 3
insert into co (b) values ('40')
select a, e, f from co order by e, a
alter table co add column g int not null
alter table co add column g int not null default 4
alter table co alter column g drop default
select g from co where b = '10'
alter table co add column h int check (h > 3)
alter table co add column i int default 1 check (i > 3)
alter table co add column j timestamp not null default now()
select count(*) from co where j is null
create index co_gi on co (g, e)
create unique index co_ge on co (e, g, a)
alter table co add constraint gpos check (g > 0)
alter table co drop column g
select indexname from pg_indexes where tablename = 'co' order by 1
select conname from pg_constraint where conrelid = 'co'::regclass order by 1
alter table co drop column g
alter table co drop column if exists g
alter table co rename column e to ee
select column_name, data_type, is_nullable::text, column_default from information_schema.columns where table_name = 'co' order by ordinal_position
alter index co_gi rename to x
create index co_h on co (h)
alter index co_h rename to co_h2
select indexname from pg_indexes where tablename = 'co' order by 1
-- Views depend on tables.
create view cov as select a from co
create view covv as select a from cov
drop table co
drop view cov
alter table co drop column a
drop view cov cascade
drop table co
-- Names.
create table nm (a int check (a > 0), b int, check (a > b), check (b > 1), constraint pk primary key (a), unique (b), foreign key (b) references nm (a))
select conname, contype from pg_constraint where conrelid = 'nm'::regclass order by 1
alter table nm rename to nm2
select conname, contype from pg_constraint where conrelid = 'nm2'::regclass order by 1
insert into nm2 values (3, 2)
insert into nm2 values (null, 2)
create table dk (id int primary key default 1, v int)
insert into dk values (default, 5)
insert into dk (v) values (6)
select * from dk
comment on table nosuch is 'x'
comment on column dk.nosuch is 'x'
-- What one statement drops, its other actions do not see.
create table aw (id int primary key, a int, b text, c text)
insert into aw values (1, 1, 'x', 'y')
alter table aw drop column c, add check (c > 'a')
alter table aw drop column c, add column d int check (c > 'a')
select * from aw
alter table aw alter a type text using b || c
alter table aw drop column c, add check (b > 'a')
select * from aw
refused: alter table aw alter a type text using b || 'z', drop column b
drop table aw
create table akey (k text primary key, v int)
create table akeys (a int, b text, primary key (a, b))
insert into akey values ('x', 1), ('y', 2)
alter table akey rename constraint akey_pkey to by_k
insert into akey values ('x', 3)
alter table akey rename to akey2
insert into akey2 values ('x', 3)
alter table akeys rename to akeys2
insert into akeys2 values (1, 'a'), (1, 'b')
insert into akeys2 values (1, 'a')
alter table akeys2 rename constraint akeys_pkey to pair
alter table akeys2 add column c int
insert into akeys2 values (1, 'a', 2)
select conname, contype from pg_constraint where conrelid in ('akey2'::regclass, 'akeys2'::regclass) and contype = 'p' order by 1
select * from akey2 order by k
drop table akey2, akeys2
