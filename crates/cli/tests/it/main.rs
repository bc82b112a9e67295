//! Every integration test of the program and the server, in one binary: each further binary would be linked on its own.

mod automatic;
mod backups;
mod cluster;
mod connecting;
mod control;
mod copies;
mod damage;
mod doctor;
mod dump;
mod feeds;
mod first_run;
mod heavy;
mod hostile;
mod http;
mod ids;
mod lab;
mod mirror;
mod no_sabotage;
mod node;
mod observing;
mod operators;
#[allow(dead_code)]
#[path = "../../../sql/tests/it/common/postgres.rs"]
mod postgres;
mod privileges;
mod publications;
mod roles;
mod schema_changes;
mod serve;
mod server;
mod several;
mod standby;
mod subscriptions;
mod temp_tables;
mod trail;
mod transport;
mod unsafe_disk;
