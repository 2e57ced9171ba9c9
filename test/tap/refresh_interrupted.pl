# What a session remembers of an engine that is gone, and what a canceled refresh
# leaves behind: nothing.
use strict;
use warnings;

use GpuvecTest;
use PostgreSQL::Test::Utils;
use Test::More;

# (without the feeder: sessions themselves change the copies)
my $node = new_node('main', conf => "gpuvec.verify = off\ngpuvec.feeder = off\n");
my $few = q{SELECT string_agg(tid::text, ' ' ORDER BY rank) FROM gpuvec_topk('docs', 'tokens', '[1,101]', 5)};
my $few_more = $few =~ s/, 5\)/, 15) WHERE score = 1/r;
my $mirror = q{SELECT loads || ' ' || refreshes FROM gpuvec_mirrors WHERE relation = 'docs'::regclass};

$node->safe_psql('postgres', q{
	CREATE TABLE docs (id int, tokens idset);
	INSERT INTO docs SELECT i, ARRAY[i, i + 100]::idset FROM generate_series(1, 600) i;});

# A1: a number is remembered for searches with few rows.  The next engine counts from
# the beginning, so a number of the one before would cover all that it reads.
my $session = $node->background_psql('postgres');
for my $i (1 .. 10)
{
	$node->safe_psql('postgres', "UPDATE docs SET id = id WHERE id = $i; VACUUM docs");
	ask($session, $few);
}
my $expected = ask($session, $few);
is($node->safe_psql('postgres', $few), $expected, 'the answer');
my $old = engine_pid($node);
kill 'KILL', $old;
wait_for(sub { !kill(0, $old) }, 'the end of the engine');
# the session meets the next engine without being told a number
ask($session, q{SELECT gpuvec_prewarm('docs', 'tokens')});
isnt(engine_pid($node), $old, 'another engine runs');
is($node->safe_psql('postgres', $mirror), '1 0', 'and has the mirror');

my $holder = $node->background_psql('postgres');
ask($holder, 'SELECT pg_advisory_lock(71866, 0)');
ask($session, q{SET gpuvec.injection_point = 'ask-before-position'});
$session->query_until(qr/started/, "\\echo started\n$few;\n");
$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
# (a row beside it is deleted, so that transactions do not tell who sees the
# page, which is read as a whole)
$node->safe_psql('postgres', q{INSERT INTO docs VALUES (9001, '[1,101]'), (9002, '[7]'); DELETE FROM docs WHERE id = 9002});
like($node->safe_psql('postgres', "SET gpuvec.freshness = sweep; $few"), qr/ .* /, 'another session finds the new row');
is($node->safe_psql('postgres', $mirror), '1 1', 'by a refresh');
ask($holder, 'SELECT pg_advisory_unlock(71866, 0)');
is(ask($session, q{SET gpuvec.injection_point = ''}), $expected, 'the session does not: its snapshot is older');
$_->quit for $session, $holder;
$node->stop;

# A refresh is canceled while the engine is busy with it: the next one waits for its end
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-commit:1000';
	$node->start;
}
$expected = $node->safe_psql('postgres', $few);
for my $round (1 .. 2)
{
	$node->safe_psql('postgres', 'INSERT INTO docs VALUES (9001 + ' . $round . q{, '[1,101]')});
	my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '300ms'; $few");
	like($err, qr/canceling statement due to statement timeout/, "round $round: canceled");
	($rc, $out, $err) = $node->psql('postgres', $few);
	is($rc, 0, "round $round: no error afterwards") or diag($err);
	is(scalar(split / /, $out), 3 + $round, "round $round: all rows are found");
}
$node->stop;

# A session that knows the mirror sends its search ahead of its refresh, and does not wait for
# that: if it fails, the answer is right all the same, and the next search makes it.  Fault: the second commit is that of the refresh, if the first was the load
my $locks = q{SELECT count(*) FROM pg_locks WHERE locktype = 'userlock'};
my $rows = 4;
for my $fault ('oom-on-commit:2', 'crash-on-commit:2', 'slow-search:1000')
{
	{
		local $ENV{GPUVEC_ENGINE_FAULT} = $fault;
		$node->start;
	}
	$session = $node->background_psql('postgres', on_error_stop => 0);
	is(scalar(split / /, ask($session, $few_more)), $rows++, "$fault: the mirror is known");
	$node->safe_psql('postgres', "INSERT INTO docs VALUES (9100 + $rows, '[1,101]')");
	if ($fault =~ /slow/)
	{
		# the search is canceled before the refresh is made
		ask($session, "SET statement_timeout = '400ms'");
	}
	my $out = $session->query($few_more);
	if ($fault =~ /slow/)
	{
		like($session->{stderr}, qr/ERROR:  canceling statement due to statement timeout/,
			 "$fault: an error of the search");
	}
	else
	{
		is(scalar(split / /, $out), $rows, "$fault: the search finds all rows");
	}
	$session->{stderr} = '';
	is($node->safe_psql('postgres', $locks), '0', "$fault: no lock is left");
	ask($session, 'RESET statement_timeout');
	is(scalar(split / /, ask($session, $few_more)), $rows, "$fault: the session finds all rows afterwards");
	is(scalar(split / /, $node->safe_psql('postgres', $few_more)), $rows, "$fault: and another one");
	$session->quit;
	$node->stop;
}

# The best rows are no more, but an old snapshot keeps them in the mirror, so the session has to
# ask on.  The refresh that its first request did not wait for has failed then: the next request
# must not be content with the mirror as it was, which lacks a row
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'oom-on-commit:2';
	$node->start;
}
$node->safe_psql('postgres', q{
	CREATE TABLE seldom (id int, tokens idset);
	INSERT INTO seldom SELECT i, '[1,101]' FROM generate_series(1, 30) i;
	INSERT INTO seldom SELECT i, '[1,200]' FROM generate_series(31, 33) i});
my $ids = q{SELECT string_agg(id::text, ' ' ORDER BY rank) FROM gpuvec_topk('seldom', 'tokens', '[1,101]', 10) t JOIN seldom ON seldom.ctid = t.tid};
$session = $node->background_psql('postgres', on_error_stop => 0);
ask($session, q{SET gpuvec.freshness = 'wal'});
is(ask($session, $ids), '1 2 3 4 5 6 7 8 9 10', 'the best rows');
my $old_snapshot = $node->background_psql('postgres');
ask($old_snapshot, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM seldom');
$node->safe_psql('postgres', q{DELETE FROM seldom WHERE id <= 30; INSERT INTO seldom VALUES (34, '[1,300]')});
is(ask($session, $ids), '31 32 33 34', 'rows behind many that are no more, without the refresh');
$_->quit for $old_snapshot, $session;
$node->stop;

# The best rows are no more, and neither are the pages that they were on (seven on each)
$node->start;
$node->safe_psql('postgres', q{
	CREATE TABLE shorter (id int, tokens idset, filler text);
	ALTER TABLE shorter ALTER filler SET STORAGE PLAIN;
	INSERT INTO shorter SELECT i, (CASE WHEN i > 35 THEN '[1,101]' ELSE '[1,200]' END)::idset, repeat('x', 1000) FROM generate_series(1, 70) i});
$ids =~ s/seldom/shorter/g;
$session = $node->background_psql('postgres', on_error_stop => 0);
ask($session, q{SET gpuvec.freshness = 'wal'});
is(ask($session, $ids), '36 37 38 39 40 41 42 43 44 45', 'the best rows');
$node->safe_psql('postgres', q{DELETE FROM shorter WHERE id > 35});
$node->safe_psql('postgres', 'VACUUM shorter');
cmp_ok($node->safe_psql('postgres', q{SELECT pg_relation_size('shorter') / 8192}), '<', 8, 'the table has become shorter');
is(ask($session, $ids), '1 2 3 4 5 6 7 8 9 10', 'the rows that are left');
$session->quit;
$node->stop;

# The answer to a refresh comes while the request behind it, much larger than a socket's
# buffer, is being sent: the engine does not read on meanwhile
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-after-refresh:500';
	$node->start;
}
my $many = q{SELECT count(*) FROM gpuvec_topk_batch('docs', 'tokens', (SELECT array_fill(array_agg(i)::idset, ARRAY[5000]) FROM generate_series(1, 1000) i), 1)};
$session = $node->background_psql('postgres', on_error_stop => 0);
is(ask($session, $many), 5000, 'a large request');
$node->safe_psql('postgres', q{INSERT INTO docs VALUES (9200, '[1,101]')});
my $found = $session->query($many);
unlike($session->{stderr}, qr/ERROR/, 'a large request behind a refresh: no error');
like($found, qr/\b5000\b/, 'a large request behind a refresh');
$session->quit;
$node->stop;
# The pages of a refresh are much more than a socket takes, and are sent while the engine
# searches; the answer to the search comes before the last of them
$node->append_conf('postgresql.conf', "full_page_writes = off\n");
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-search:300';
	$node->start;
}
$node->safe_psql('postgres', q{
	CREATE TABLE large (id int, tokens idset, filler text, changes int DEFAULT 0) WITH (fillfactor = 50);
	ALTER TABLE large ALTER tokens SET STORAGE EXTERNAL, ALTER filler SET STORAGE PLAIN;
	CREATE FUNCTION large_set(n int) RETURNS idset LANGUAGE sql AS 'SELECT array_agg(i * 3 + n % 3)::idset FROM generate_series(1, 20000) i';
	INSERT INTO large SELECT i, large_set(i), repeat('x', 1500) FROM generate_series(1, 200) i});
my $of_large = q{SELECT string_agg(id || ': ' || common, ', ' ORDER BY rank) FROM gpuvec_topk('large', 'tokens', '[3,4,6]', 4) t JOIN large ON large.ctid = t.tid};
$session = $node->background_psql('postgres', on_error_stop => 0);
ask($session, $of_large);
for my $round (1 .. 3)
{
	# little WAL: the sets stay where they are
	$node->safe_psql('postgres', "UPDATE large SET changes = changes + 1 WHERE id % 2 = 0; INSERT INTO large VALUES (-$round, '[3,4,6,7]')");
	my $answer = $session->query($of_large);
	unlike($session->{stderr}, qr/ERROR/, "large sets behind a search, round $round: no error");
	is(() = $answer =~ /-\d: 3/g, $round, "large sets behind a search, round $round");
}
$session->quit;
$node->stop;
# A refresh that nobody awaits is not made, because another session's is not finished.  That is
# not to be taken for what the mirror is like: for the planner it is there as before
{
	local $ENV{GPUVEC_ENGINE_FAULT} = 'slow-commit:1000';
	$node->start;
}
$node->safe_psql('postgres', q{
	CREATE TABLE refused (id int, tokens idset);
	INSERT INTO refused SELECT i, ARRAY[i % 500, i % 499 + 500]::idset FROM generate_series(1, 5000) i;
	CREATE INDEX ON refused USING gpuvec (tokens);
	VACUUM ANALYZE refused});
my $nearest = q{SELECT id FROM refused ORDER BY tokens <-> '[1,2]' LIMIT 1};
my @sessions = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
ask($_, "SET enable_seqscan = off; $nearest") for @sessions;
my $plan = $node->safe_psql('postgres', "EXPLAIN $nearest");
like($plan, qr/Index Scan/, 'a search by index');
$node->safe_psql('postgres', q{INSERT INTO refused VALUES (-1, '[1,2]')});
is(ask($_, $nearest), '-1', 'a search while a refresh is made') for @sessions;
# the answer to its refresh is read before this
ask($sessions[1], 'SELECT pid FROM gpuvec_engine');
is($node->safe_psql('postgres', "EXPLAIN $nearest"), $plan, 'what the planner knows has not changed');
is(ask($_, $nearest), '-1', 'the next search') for @sessions;
$_->quit for @sessions;
$node->stop;

# Small histories of the best rows themselves, each followed at once by searches of the
# session that made it, which knows the mirrors: what the engine gives of the mirror as it was,
# and what was read on changed pages, have to be what a scan of the table gives
$node->start;
$node->safe_psql('postgres', q{
	CREATE FUNCTION any_set(n int) RETURNS idset LANGUAGE sql VOLATILE AS $$
		SELECT CASE WHEN random() < 0.04 THEN NULL WHEN random() < 0.04 THEN '{}' ELSE
			(SELECT array_agg((random() * 12)::int) FROM generate_series(0, (random() * n)::int))::idset END $$;
	CREATE FUNCTION with_seven(tokens idset) RETURNS idset LANGUAGE sql IMMUTABLE AS 'SELECT tokens OPERATOR(public.|) 7';
	CREATE TABLE merged (id serial PRIMARY KEY, tokens idset, note int NOT NULL DEFAULT 0, changes int NOT NULL DEFAULT 0) WITH (fillfactor = 70);
	INSERT INTO merged (tokens, note) SELECT any_set(5), i % 5 FROM generate_series(1, 500) i;
	CREATE INDEX ON merged USING gpuvec (tokens);
	CREATE INDEX ON merged USING gpuvec (tokens) WHERE note < 3;
	CREATE INDEX ON merged USING gpuvec (with_seven(tokens));
	ANALYZE merged;

	-- ties, few rows or more than there are, with or without a bound, and only some rows
	CREATE FUNCTION check_topk(q idset, k int) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		measure text := (ARRAY['braun_blanquet', 'jaccard', 'cosine', 'dice', 'overlap', 'containment', 'intersection', 'hamming', 'kulczynski'])[1 + (random() * 8)::int];
		bound float8 := CASE WHEN random() < 0.4 THEN (CASE measure WHEN 'hamming' THEN -3 WHEN 'intersection' THEN 2 ELSE 0.5 END) END;
		among tid[] := CASE WHEN random() < 0.1 THEN (SELECT array_agg(ctid) FROM merged WHERE id % 3 = 0) END;
		r record;
	BEGIN
		EXECUTE format('SELECT (SELECT string_agg(tid || '' '' || score || '' '' || common, '','' ORDER BY rank) FROM gpuvec_topk(''merged'', ''tokens'', $1, $2, %L, $3, $4)) AS found,
			(SELECT string_agg(tid || '' '' || s || '' '' || c, '','' ORDER BY s DESC, tid) FROM (
				SELECT * FROM (SELECT ctid AS tid, (%s)::float8 AS s, intersection_count($1, tokens) AS c FROM merged) y
				WHERE (%1$L = ''hamming'' OR c > 0) AND s >= coalesce($3, ''-Infinity'') AND ($4 IS NULL OR tid = ANY ($4)) ORDER BY s DESC, tid LIMIT $2) x) AS scanned',
			measure, CASE measure WHEN 'hamming' THEN '-hamming_distance($1, tokens)' WHEN 'intersection' THEN 'intersection_count($1, tokens)' ELSE measure || '_similarity($1, tokens)' END)
			INTO r USING q, k, bound, among;
		IF r.found IS DISTINCT FROM r.scanned THEN
			RAISE EXCEPTION 'mistake: gpuvec_topk % % %, at least %: %', q, k, measure, bound, r;
		END IF;
	END $$;

	-- an index does not say in which order rows of the same distance come
	CREATE FUNCTION check_order(q idset, k int) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET enable_sort = off SET enable_bitmapscan = off AS $$
	DECLARE
		form int := 1 + (random() * 2)::int;
		distance text := format('%s %s %L::idset', (ARRAY['tokens', 'tokens', 'with_seven(tokens)'])[form], (ARRAY['<->', '<%>', '<=>', '<#>', '<~>'])[1 + (random() * 4)::int], q);
		r record;
	BEGIN
		EXECUTE format('WITH a AS MATERIALIZED (SELECT id, ctid AS tid, %1$s AS d FROM merged WHERE %2$s ORDER BY %1$s LIMIT %3$s),
				b AS MATERIALIZED (SELECT id, ctid AS tid, %1$s AS d FROM merged WHERE %2$s ORDER BY nullif(%1$s, -1e30))
			SELECT (SELECT array_agg(d) FROM a) AS found, (SELECT array_agg(d) FROM (SELECT d FROM b LIMIT %3$s) x) AS scanned,
				(SELECT count(DISTINCT id) FROM a) AS ids, (SELECT count(*) FROM a JOIN b USING (id, tid) WHERE a.d IS NOT DISTINCT FROM b.d) AS right_rows', distance, (ARRAY['true', 'note < 3', 'true'])[form], k) INTO r;
		IF r.found IS DISTINCT FROM r.scanned OR r.ids <> coalesce(cardinality(r.found), 0) OR r.right_rows <> r.ids THEN
			RAISE EXCEPTION 'mistake: order by % limit %: %', distance, k, r;
		END IF;
	END $$;

	CREATE FUNCTION change_best(q idset) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		best int[] := (SELECT array_agg(id) FROM (SELECT id FROM merged ORDER BY nullif(tokens <~> q, -1) OFFSET (random() * 3)::int LIMIT 1 + (random() * 4)::int) x);
	BEGIN
		CASE (random() * 7)::int
			WHEN 0 THEN INSERT INTO merged (tokens) SELECT q FROM generate_series(0, (random() * 3)::int);
			WHEN 1 THEN INSERT INTO merged (tokens, note) VALUES (q | 3, 1), (any_set(5), 4);
			WHEN 2, 3 THEN DELETE FROM merged WHERE id = ANY (best);
			WHEN 4 THEN UPDATE merged SET changes = changes + 1 WHERE id = ANY (best);
			WHEN 5 THEN UPDATE merged SET note = (note + 2) % 5 WHERE id = ANY (best);
			ELSE UPDATE merged SET tokens = any_set(5) WHERE id = ANY (best);
		END CASE;
		-- as many rows as before, about
		INSERT INTO merged (tokens, note) SELECT any_set(5), id % 5 FROM generate_series(1, greatest(0, 480 - (SELECT count(*) FROM merged))) id;
	END $$;

	CREATE PROCEDURE histories(n int) LANGUAGE plpgsql AS $$
	DECLARE
		q idset;
		k int;
	BEGIN
		FOR i IN 1 .. n LOOP
			q := coalesce(any_set(6), '{1,2,3}');
			k := CASE WHEN random() < 0.8 THEN 1 + random() * 5 ELSE 1 + random() * 600 END;
			-- for so small a table WAL that is not on disk yet is not waited for
			PERFORM set_config('gpuvec.verify', (random() < 0.5)::text, false), set_config('gpuvec.freshness', CASE WHEN random() < 0.8 THEN 'wal' ELSE 'auto' END, false);
			IF random() < 0.3 THEN
				BEGIN
					PERFORM change_best(q), check_topk(q, k), check_order(q, k);
					RAISE EXCEPTION 'undo';
				EXCEPTION WHEN raise_exception THEN
					IF SQLERRM <> 'undo' THEN RAISE; END IF;
				END;
			ELSE
				PERFORM change_best(q);
			END IF;
			-- rows that are gone for everybody are not read again, others are
			IF random() < 0.5 THEN COMMIT; END IF;
			PERFORM check_topk(q, k), check_order(q, k);
			IF random() < 0.2 THEN COMMIT; END IF;
		END LOOP;
	END $$;});
$session = $node->background_psql('postgres', on_error_stop => 0);
my $refreshed = q{SELECT string_agg(kind, ' ' ORDER BY kind) FROM gpuvec_mirrors WHERE relation = 'merged'::regclass AND loads = 1 AND (refreshes > 200 OR rows_by_feed > 200)};
for my $round (1 .. 10)
{
	if ($round == 7)
	{
		# how often sessions leave the refresh to others depends on the machine
		for (1 .. 20)
		{
			last if $node->safe_psql('postgres', $refreshed) eq 'chains index index';
			$session->query('CALL histories(300)');
		}
		is($node->safe_psql('postgres', $refreshed), 'chains index index', 'of three mirrors, by many refreshes')
			or diag($node->safe_psql('postgres', q{SELECT * FROM gpuvec_mirrors}));
		# then the functions search a mirror of row versions, not of HOT chains; that goes when it is unused for some seconds
		ask($session, 'DROP INDEX merged_tokens_idx');
	}
	$session->query('CALL histories(300)');
	is($session->{stderr} =~ s/background_psql.*\n?//r, '', "histories, round $round");
	$session->{stderr} = '';
	# rows go, the table gets shorter, and the map of visible pages says so
	ask($session, 'DELETE FROM merged WHERE ctid > (SELECT max(ctid) FROM merged WHERE id % 2 = 0 AND ctid < \'(9,0)\')') if $round % 3 == 0;
	ask($session, 'VACUUM merged');
}
is($node->safe_psql('postgres', "$refreshed AND kind <> 'chains'"), 'index index rows', 'and of another one');
$session->quit;
$node->stop;
done_testing();
