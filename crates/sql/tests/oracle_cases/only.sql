-- ONLY: no table has children, so it changes nothing.
create table region (id int primary key, name text, at int)
create table trip (id int primary key, region int, "only" int)
insert into region values (1, 'north', 10), (2, 'south', 20), (3, 'east', 30)
insert into trip values (1, 2, 5), (2, 3, 6)
select id, name from only public.region where (at > 10) order by id
select name from only (region) order by name
select name from only (public.region) r order by name
select r.name, t.id from only region r join only trip t on t.region = r.id order by 1
select r.name, t.id from region r, only trip t where t.region = r.id order by 1
select "only" from trip order by 1
select t."only" from only trip as t order by 1
select id as only from trip order by 1
select * from only
select count(*) from only (select 1)
update only region set at = at + 1 where id = 1
delete from only region where id = 3
delete from only trip using only region where region.id = trip.region and region.id = 2
select id, at from region order by id
select id from trip order by id
