-- What scripts/demo-page.pl draws as a map: well-known packages, those most like them, and who
-- of these are neighbors.  Lines "node TAB name TAB seed TAB rank TAB description" and
-- "edge TAB name TAB name TAB score".
CREATE TEMP TABLE seeds AS
SELECT row_number() OVER () AS seed, name, words FROM packages
WHERE name IN ('postgresql', 'nginx', 'gimp', 'vim', 'firefox-esr', 'gcc', 'python3-numpy', 'stellarium', 'ardour', 'wireshark',
	'libreoffice-writer', 'supertux', 'r-base', 'openssh-server');
CREATE TEMP TABLE nodes AS
WITH q AS (SELECT array_agg(words ORDER BY seed) AS sets FROM seeds),
near AS (
	SELECT (t.item).name, (t.item).description, (t.item).words, t.query AS seed, t.rank, t.score
	FROM q, gpuvec_topk_batch_rows(NULL::packages, 'words', q.sets, 11, 'jaccard') t)
SELECT DISTINCT ON (name) * FROM near ORDER BY name, score DESC, seed;

SELECT 'node', name, seed, rank, description FROM nodes ORDER BY seed, rank, name;
WITH q AS (SELECT array_agg(name ORDER BY name) AS names, array_agg(words ORDER BY name) AS sets FROM nodes),
near AS (
	SELECT q.names[t.query] AS name, (t.item).name AS neighbor, t.score
	FROM q, gpuvec_topk_batch_rows(NULL::packages, 'words', q.sets, 8, 'jaccard') t)
SELECT DISTINCT 'edge', least(a.name, a.neighbor), greatest(a.name, a.neighbor), round(a.score::numeric, 3)
FROM near a JOIN nodes n ON n.name = a.neighbor WHERE a.name <> a.neighbor ORDER BY 2, 3;
