-- What schema changes of published tables do.
create table t(id int primary key, a int, s text, e int, f int);
create table u(id int primary key, b int);
create table free(id int primary key, b int);
create publication one for table t (id, a) where (a > 1), u;
create publication two for table t where (s = 'a' or s = 's'), free;
create publication everything for all tables;
alter table t drop column a;
alter table t drop column s;
alter table t alter column a type bigint;
alter table t alter column s type varchar(10);
alter table t alter column id type bigint;
alter table t alter column id type int;
alter table t drop column e;
alter table t rename column a to "new A";
alter table t rename column s to a;
alter table t add column late int;
alter table t rename to tt;
select * from pg_publication_tables order by 1, 3;
\d tt
\dRp+
alter table tt drop column "new A";
alter table tt drop column a;
alter table tt drop column a cascade;
select pubname, tablename, attnames, rowfilter from pg_publication_tables where tablename = 'tt' order by 1;
begin;
alter table tt drop column "new A" cascade;
drop table u;
select pubname, tablename, attnames, rowfilter from pg_publication_tables order by 1, 2;
rollback;
select pubname, tablename, attnames, rowfilter from pg_publication_tables order by 1, 2;
alter table tt drop column "new A" cascade;
alter table tt drop column if exists nope;
drop table u;
select pubname, tablename, attnames, rowfilter from pg_publication_tables order by 1, 2;
create table u(id int primary key, b int);
select pubname, tablename from pg_publication_tables where tablename = 'u';
alter publication one add table u, tt;
drop table u, tt cascade;
\dRp+
drop publication one, two, everything;
select count(*) from pg_publication;
select count(*) from pg_publication_rel;
