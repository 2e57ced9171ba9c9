#!/bin/bash
# Shows gpuvec on real data, on a private server; called by "make demo".
#
# What it shows in the terminal and more goes to demo.html, a page that needs no server and no
# network.  scripts/demo-page.pl draws its pictures.
set -uo pipefail

# Kernels are compiled for the GPU that is here, and not at all if there is none
gpu=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
[[ $gpu == *,*.* ]] || { gpu=""; WITH_CUDA=no; }

. "$(dirname "${BASH_SOURCE[0]}")/pgenv.sh"
unset PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS PGSERVICE MAKEFLAGS MAKELEVEL

finish() {
	local status=$?
	trap - EXIT
	[ -d "$work/data" ] && gpuvec_stop data immediate
	rm -rf "$work" "$sockets"
	exit $status
}
gpuvec_workdir tmp_demo
trap finish EXIT
trap 'exit 130' INT TERM

page=$top/demo.html
[ -w "$top" ] || page=$(mktemp /tmp/gpuvec-demo.XXXXXX.html)
if [ -n "$gpu" ]; then
	built="for PostgreSQL $pgversion, with kernels for this GPU only ($gpu)"
else
	built="for PostgreSQL $pgversion, without CUDA, as there is no GPU here"
fi
echo "Building gpuvec $built: some minutes with kernels, half a minute without ..."
began=$SECONDS
if ! { gpuvec_build && gpuvec_stage; } >"$work/build.log" 2>&1; then
	tail -n 30 "$work/build.log" >&2
	exit 1
fi
built="$built, in $((SECONDS - began)) s"
echo "Built in $((SECONDS - began)) s. Starting a private server ..."
began=$SECONDS
gpuvec_start data || exit 1

sql() { "$bindir/psql" -X -q -v ON_ERROR_STOP=1 -P pager=off -P footer=off "$@"; }
bold='' plain=''
[ ! -t 1 ] || bold=$'\033[1m' plain=$'\033[0m'
# show TITLE SQL: a statement, its result and its time
show() {
	printf '\n%s-- %s%s\n%s\n\n' "$bold" "$1" "$plain" "$2"
	sql -c '\timing on' -c "$2" || exit 1
}

# exhibit TITLE SQL: the same for a query, in the page as well
exhibit() {
	show "$@"
	section "$@"
}
# section TITLE SQL: a query and its result in the page only
section() {
	{
		printf '<section><h2>%s</h2>\n' "$1"
		sql -H -P border=0 -P tableattr='class="rows"' -c "$2"
		printf '<details><summary>The statement</summary><pre>%s</pre></details></section>\n' "$(escaped "$2")"
	} >>"$work/sections.html" || exit 1
}
# listed TITLE SQL: an exhibit that doc/recommendations.md shows; says if it shows other rows
listed() {
	exhibit "$@"
	sql -c "$2" | sed 's/ *$//' | grep -vxFf "$top/doc/recommendations.md" >/dev/null || return 0
	echo "doc/recommendations.md shows other rows than these." >&2
}
escaped() { sed 's/&/\&amp;/g;s/</\&lt;/g;s/>/\&gt;/g' <<<"$1"; }

sql -c 'CREATE EXTENSION gpuvec' || exit 1
sql -v data="$work/src/test/data" -f "$work/src/test/data/load.sql" || exit 1
sql -c 'CREATE FUNCTION words_of(package text) RETURNS idset LANGUAGE sql STABLE AS $$ SELECT words FROM packages WHERE name = package $$' || exit 1

show "The data: Debian's packages, each with the set of its tags and words" \
	"SELECT count(*) AS packages, round(avg(cardinality(words)), 1) AS words_each, (SELECT count(*) FROM words) AS vocabulary FROM packages;"
exhibit "Which packages are most like postgresql? The first search starts the engine and loads the table" \
	"SELECT t.rank, round(t.score::numeric, 3) AS score, t.common, p.name, left(p.description, 60) AS description
FROM gpuvec_topk('packages', 'words', words_of('postgresql'), 10) t JOIN packages p ON p.ctid = t.tid ORDER BY t.rank;"
show "The same question again: the table is resident now" \
	"SELECT count(*) FROM gpuvec_topk('packages', 'words', words_of('postgresql'), 10);"
show "Like nginx, by cosine similarity" \
	"SELECT t.rank, round(t.score::numeric, 3) AS score, p.name, left(p.description, 60) AS description
FROM gpuvec_topk('packages', 'words', words_of('nginx'), 8, 'cosine') t JOIN packages p ON p.ctid = t.tid ORDER BY t.rank;"
show "Why these are like gimp: the words in common" \
	"SELECT p.name, round(t.score::numeric, 3) AS score, t.common,
  (SELECT string_agg(w.word, ' ' ORDER BY w.word) FROM unnest(words_of('gimp') & p.words) i JOIN words w ON w.id = i
   WHERE w.word !~ ':') AS common_words_that_are_no_tags
FROM gpuvec_topk('packages', 'words', words_of('gimp'), 5, 'jaccard') t JOIN packages p ON p.ctid = t.tid ORDER BY t.rank;"
exhibit "Any set of words can be a query: graphical editors for pictures, implemented in C++" \
	"SELECT t.rank, round(t.score::numeric, 3) AS score, p.name, left(p.description, 60) AS description
FROM gpuvec_topk('packages', 'words', (SELECT idset_agg(id) FROM words WHERE word IN
  ('use::editing', 'works-with::image:raster', 'interface::graphical', 'implemented-in::c++')), 5, 'containment') t
JOIN packages p ON p.ctid = t.tid ORDER BY t.rank;"
show "All packages with a Jaccard similarity of at least 0.5 to vim" \
	"SELECT p.name, round(t.score::numeric, 3) AS score FROM gpuvec_topk('packages', 'words', words_of('vim'), NULL, 'jaccard', 0.5) t JOIN packages p ON p.ctid = t.tid ORDER BY t.rank;"
show "Several queries in one statement: the nearest neighbour of each" \
	"WITH q AS (SELECT array_agg(name ORDER BY name) AS names, array_agg(words ORDER BY name) AS sets
  FROM packages WHERE name IN ('bash', 'emacs-nox', 'firefox-esr', 'gcc', 'thunderbird'))
SELECT q.names[t.query] AS package, p.name AS is_most_like, round(t.score::numeric, 3) AS score
FROM q, gpuvec_topk_batch('packages', 'words', q.sets, 2) t JOIN packages p ON p.ctid = t.tid
WHERE p.name <> q.names[t.query] ORDER BY t.query, t.rank;"
show "2,000 queries in one statement: the nearest neighbours of 2,000 packages" \
	"SELECT count(*) AS results, round(avg(score)::numeric, 3) AS mean_score FROM gpuvec_topk_batch('packages', 'words', (SELECT array_agg(words) FROM (SELECT words FROM packages ORDER BY name LIMIT 2000) q), 10);"
show "Factors of packages and tags: packages are users, their tags are items" \
	"CREATE TABLE numbered AS SELECT row_number() OVER (ORDER BY name COLLATE \"C\") AS package, name, words FROM packages;
CREATE TABLE package_tags AS SELECT package, w.id AS tag FROM numbered, unnest(words) i JOIN words w ON w.id = i WHERE w.word ~ ':';
CREATE TABLE package_factors (key bigint PRIMARY KEY, embedding real[]);
CREATE TABLE tag_factors (key bigint PRIMARY KEY, embedding real[]);
SELECT iteration, round(loss::numeric, 6) AS loss FROM gpuvec_als('package_tags', 'package', 'tag', 'package_factors', 'tag_factors', factors => 32, regularization => 0.1, alpha => 10) WHERE iteration % 5 = 0;"
listed "Packages that are related to postgresql, by the cosine of their factors" \
	"SELECT n.rank, round(n.score::numeric, 3) AS score, p.name, left(p.description, 60) AS description
FROM numbered q JOIN package_factors f ON f.key = q.package, gpuvec_nearest('package_factors', 'key', 'embedding', f.embedding, 6, exclude => ARRAY[f.key]) n
  JOIN numbered t ON t.package = n.key JOIN packages p USING (name) WHERE q.name = 'postgresql' ORDER BY n.rank;"
listed "Tags that gimp might have as well" \
	"SELECT r.rank, round(r.score::numeric, 3) AS score, w.word AS tag
FROM numbered q, gpuvec_recommend('package_factors', 'tag_factors', ARRAY[q.package], 4, 'package_tags', 'package', 'tag') r JOIN words w ON w.id = r.item_key WHERE q.name = 'gimp' ORDER BY r.rank;"
listed "Why use::viewing: the tags that it has" \
	"SELECT round(e.contribution::numeric, 3) AS contribution, w.word AS tag
FROM numbered q JOIN words v ON v.word = 'use::viewing', gpuvec_als_explain('package_tags', 'package', 'tag', 'tag_factors', q.package, v.id, regularization => 0.1, alpha => 10) e
  JOIN words w ON w.id = e.item_key WHERE q.name = 'gimp' ORDER BY e.contribution DESC LIMIT 4;"
show "A change shows in the next search" \
	"INSERT INTO packages VALUES ('my-postgresql', 'a package that was just added', words_of('postgresql'));
SELECT t.rank, p.name FROM gpuvec_topk('packages', 'words', words_of('postgresql'), 2) t JOIN packages p ON p.ctid = t.tid ORDER BY t.rank;"
exhibit "What is resident" \
	"SELECT relation, columns, state, rows, segments, pg_size_pretty(bytes) AS size, loads, refreshes, searches FROM gpuvec_mirrors;"
exhibit "The engine" \
	"SELECT backend, device, threads, pg_size_pretty(memory_used) AS used, pg_size_pretty(memory_budget) AS budget, requests, batches FROM gpuvec_engine;"

echo
echo "Making the page: trigrams of all descriptions, pg_trgm's indexes beside them, a map ..."
. "$top/scripts/demo-fuzzy.sh"
sql -At -F $'\t' -f "$top/scripts/demo-map.sql" >"$work/map" || exit 1
gpuvec_stop data
perl "$top/scripts/demo-page.pl" "$work" "$built" "$((SECONDS - began))" >"$work/demo.html" && cp "$work/demo.html" "$page" || exit 1
echo
echo "That was gpuvec. Look at $page, and at README.md for how to install it."
