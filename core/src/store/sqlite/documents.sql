-- Version 2: realms, tokens, requests and nonces.
CREATE TABLE document (
  collection TEXT NOT NULL, key TEXT NOT NULL, text TEXT NOT NULL, version INTEGER NOT NULL,
  expires INTEGER, PRIMARY KEY (collection, key)) WITHOUT ROWID;
CREATE INDEX document_expires ON document (expires) WHERE expires IS NOT NULL;
