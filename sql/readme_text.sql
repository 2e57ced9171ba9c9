-- The statements of README.md's "Fuzzy text search", as they stand there.
CREATE TABLE programs (name text PRIMARY KEY, about text, trigrams idset GENERATED ALWAYS AS (idset_trigrams(about)) STORED);
INSERT INTO programs VALUES ('gimp', 'GNU Image Manipulation Program'), ('inkscape', 'vector-based drawing program'), ('nginx', 'small, powerful, scalable web/proxy server');
CREATE INDEX programs_trigrams ON programs USING gpuvec (trigrams);
SELECT name, trigrams <%> idset_trigrams('gnu imige maniplation') AS distance FROM programs ORDER BY trigrams <%> idset_trigrams('gnu imige maniplation') LIMIT 2;
SELECT name FROM programs WHERE trigrams <<->> (idset_trigrams('drawing program'), 0.5, 'jaccard');
CREATE TABLE tags (id bigint PRIMARY KEY, token text COLLATE "C" NOT NULL UNIQUE);
CREATE TABLE photos (id int PRIMARY KEY, tags idset);
INSERT INTO photos SELECT id, idset_encode('tags', words) FROM (VALUES (1, '{sea,sunset}'::text[]), (2, '{city,night}'), (3, '{sea,night}')) v (id, words);
SELECT id, idset_decode('tags', tags) FROM photos WHERE tags @> (SELECT idset_encode('tags', '{sea}', grow => false)) ORDER BY id;
DROP TABLE programs, tags, photos;
