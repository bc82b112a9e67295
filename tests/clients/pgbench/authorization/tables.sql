-- The card authorization's two files: 10,000 terminals of about 4,072 bytes, a log with four alternate keys.
create table terminal (id bigint primary key, term_no text not null unique, site text not null,
    approved_count bigint not null, last_at bigint not null, profile text not null);
create table txn_log (id bigserial primary key, card text not null, term_no text not null,
    auth_code text not null, at bigint not null, body text not null);
insert into terminal select g, (10000000 + g)::text, 'S' || lpad((g % 500)::text, 5, '0'), 0, 0, repeat(md5(g::text), 126)
    from generate_series(1, 10000) g;
insert into txn_log (card, term_no, auth_code, at, body)
    select (4000000000000000 + g)::text, (10000000 + 1 + g % 10000)::text, (1000000 + g)::text, g, repeat(md5(g::text), 29)
    from generate_series(1, 30000) g;
create index terminal_site on terminal (site);
create index txn_log_card on txn_log (card);
create index txn_log_term_no on txn_log (term_no);
create index txn_log_auth_code on txn_log (auth_code);
create index txn_log_at on txn_log (at);
