-- Loads Debian's packages into the tables packages and words.  The psql variable
-- `data` is this folder: psql -v data=test/data -f test/data/load.sql
CREATE TABLE packages (name text PRIMARY KEY, description text NOT NULL, words idset NOT NULL);
CREATE TABLE words (id int PRIMARY KEY, word text UNIQUE NOT NULL);
\set copy '\\copy packages FROM PROGRAM ''xz -dc "' :data '/packages.tsv.xz"'''
:copy
\set copy '\\copy words FROM PROGRAM ''xz -dc "' :data '/words.tsv.xz"'''
:copy
\unset copy
VACUUM ANALYZE packages, words;
