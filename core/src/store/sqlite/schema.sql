-- Version 1. Numbers of realms, logs and queues come from one row of meta and are never used again.
CREATE TABLE meta (k TEXT PRIMARY KEY, v INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE realm (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- head and what follows: the totals at its end as of the last write; entries behind it have their own.
CREATE TABLE log (
  id INTEGER PRIMARY KEY, realm INTEGER NOT NULL, key TEXT NOT NULL,
  head INTEGER NOT NULL, guaranteed INTEGER NOT NULL, bytes INTEGER NOT NULL,
  guaranteed_bytes INTEGER NOT NULL, line_expires INTEGER);

CREATE TABLE queue (
  id INTEGER PRIMARY KEY, log INTEGER NOT NULL, kind INTEGER NOT NULL, name TEXT NOT NULL,
  settings TEXT NOT NULL, seen INTEGER NOT NULL DEFAULT 0, sent INTEGER NOT NULL DEFAULT 0,
  is_left INTEGER NOT NULL DEFAULT 0, exceptions INTEGER NOT NULL DEFAULT 0,
  exception_bytes INTEGER NOT NULL DEFAULT 0, joined INTEGER NOT NULL DEFAULT 0,
  owned INTEGER NOT NULL DEFAULT 0, owned_guaranteed INTEGER NOT NULL DEFAULT 0,
  low INTEGER NOT NULL DEFAULT 0, gone INTEGER NOT NULL DEFAULT 0,
  shut_number INTEGER, shut_seq INTEGER);

-- Runs of numbers: settled ones of a queue, gone ones of a log.
CREATE TABLE run (
  owner INTEGER NOT NULL, kind INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
  PRIMARY KEY (owner, kind, first)) WITHOUT ROWID;

-- A message once, whatever the number of its references; refs has those with more than one.
CREATE TABLE body (mid INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE refs (mid INTEGER PRIMARY KEY, n INTEGER NOT NULL);
CREATE TABLE damaged (mid INTEGER PRIMARY KEY, data BLOB);

-- guaranteed, bytes and guaranteed_bytes are totals of the log up to this entry.
CREATE TABLE entry (
  log INTEGER NOT NULL, seq INTEGER NOT NULL, mid INTEGER NOT NULL, size INTEGER NOT NULL,
  produced INTEGER NOT NULL, expires INTEGER, is_guaranteed INTEGER NOT NULL,
  is_late INTEGER NOT NULL, guaranteed INTEGER NOT NULL, bytes INTEGER NOT NULL,
  guaranteed_bytes INTEGER NOT NULL, PRIMARY KEY (log, seq)) WITHOUT ROWID;
CREATE INDEX entry_guaranteed ON entry (log, guaranteed) WHERE is_guaranteed;
CREATE INDEX entry_late ON entry (log, expires) WHERE is_late;

CREATE TABLE exception (
  queue INTEGER NOT NULL, seq INTEGER NOT NULL, mid INTEGER NOT NULL, size INTEGER NOT NULL,
  produced INTEGER NOT NULL, expires INTEGER, is_guaranteed INTEGER NOT NULL,
  rounds INTEGER NOT NULL, attempts INTEGER NOT NULL, failures INTEGER NOT NULL,
  returns INTEGER NOT NULL, due INTEGER NOT NULL, first_error TEXT, last_error TEXT,
  suspect INTEGER NOT NULL, PRIMARY KEY (queue, seq)) WITHOUT ROWID;
CREATE INDEX exception_due ON exception (queue, due, seq);
CREATE INDEX exception_expires ON exception (expires) WHERE expires IS NOT NULL;

CREATE TABLE dead (
  realm INTEGER NOT NULL, queue INTEGER NOT NULL, seq INTEGER NOT NULL, mid INTEGER NOT NULL,
  size INTEGER NOT NULL, produced INTEGER NOT NULL, expires INTEGER,
  is_guaranteed INTEGER NOT NULL, key TEXT NOT NULL, kind INTEGER NOT NULL, name TEXT NOT NULL,
  attempts INTEGER NOT NULL, rounds INTEGER NOT NULL, reason TEXT NOT NULL, first_error TEXT,
  last_error TEXT, dead_at INTEGER NOT NULL, PRIMARY KEY (realm, queue, seq)) WITHOUT ROWID;
CREATE INDEX dead_age ON dead (realm, dead_at, queue, seq);

CREATE TABLE delayed (
  n INTEGER PRIMARY KEY AUTOINCREMENT, realm INTEGER NOT NULL, message INTEGER NOT NULL UNIQUE,
  due INTEGER NOT NULL, mid INTEGER NOT NULL, owner TEXT);
CREATE INDEX delayed_due ON delayed (due, n);
CREATE INDEX delayed_realm ON delayed (realm);

CREATE TABLE mark (
  realm INTEGER NOT NULL, instance TEXT NOT NULL, used INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (realm, instance)) WITHOUT ROWID;

CREATE TABLE uid (
  realm INTEGER NOT NULL, uid TEXT NOT NULL, message INTEGER NOT NULL, at INTEGER NOT NULL,
  n INTEGER NOT NULL, PRIMARY KEY (realm, uid)) WITHOUT ROWID;
CREATE INDEX uid_age ON uid (realm, n);
