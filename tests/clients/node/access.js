// node-postgres and postgres.js over TLS and with a password: prints one line a case, "case<TAB>finding".
//
//   node access.js PORT CA FOREIGN_CA
//
// The role `app` has the password `open sesame`. A finding that begins with "error: " is an error.
'use strict';

const fs = require('node:fs');
const { Client } = require('pg');
const postgres = require('postgres');

const [port, ca, foreignCa] = process.argv.slice(2);
const tls = (file) => ({ ca: fs.readFileSync(file, 'utf8'), servername: 'localhost' });
const WHO = 'SELECT current_user, (SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid())';
const LOGIN = { host: 'localhost', port: Number(port), user: 'app', password: 'open sesame', database: 'holdfast' };

const CASES = [
  ['verify_full', { ssl: tls(ca) }, WHO],
  ['channel_binding', { ssl: tls(ca), enableChannelBinding: true }, WHO],
  ['wrong_password', { ssl: tls(ca), password: 'open barley' }, WHO],
  ['unknown_user', { ssl: tls(ca), user: 'nobody at all' }, WHO],
  ['no_tls', { ssl: false }, WHO],
  ['foreign_ca', { ssl: tls(foreignCa) }, WHO],
  ['granted', { ssl: tls(ca) }, 'SELECT count(*) FROM notes'],
  ['denied', { ssl: tls(ca) }, 'SELECT * FROM secrets'],
];

async function withPg(options, sql) {
  const client = new Client({ ...LOGIN, ...options });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

async function withPostgresJs(options, sql) {
  const client = postgres({ ...LOGIN, ...options, max: 1, fetch_types: false, onnotice: () => {} });
  try {
    return [...(await client.unsafe(sql))];
  } finally {
    await client.end();
  }
}

async function main() {
  for (const [driver, run] of [['pg', withPg], ['postgres.js', withPostgresJs]]) {
    for (const [name, options, sql] of CASES) {
      if (driver === 'postgres.js' && 'enableChannelBinding' in options) continue; // it has no channel binding
      let found;
      try {
        found = JSON.stringify(await run(options, sql));
      } catch (error) {
        found = `error: ${error.code} ${error.message}`;
      }
      console.log(`${driver}_${name}\t${found.replaceAll('\n', '\\n').replaceAll(`:${port}`, ':PORT')}`);
    }
  }
}

main();
