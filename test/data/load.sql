-- Loads the packages of Debian; psql variable `data` is this folder, and the
-- files in it must have been decompressed (xz -dk *.xz).
CREATE TABLE packages (name text PRIMARY KEY, description text NOT NULL, words idset NOT NULL);
CREATE TABLE words (id int PRIMARY KEY, word text UNIQUE NOT NULL);
\set copy '\\copy packages FROM ' '''' :data '/packages.tsv' ''''
:copy
\set copy '\\copy words FROM ' '''' :data '/words.tsv' ''''
:copy
VACUUM ANALYZE packages, words;
