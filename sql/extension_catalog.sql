-- What the extension puts into the catalogs, by the rules that the server has for its own objects
CREATE VIEW members AS SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid
WHERE d.refclassid = 'pg_extension'::regclass AND e.extname = 'gpuvec' AND d.deptype = 'e';
CREATE VIEW functions AS SELECT p.* FROM pg_proc p JOIN members m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid;
SELECT count(*) > 100 AS many FROM functions;

-- Aggregates: with one name for several numbers of arguments, or a variable number, a misplaced ORDER BY is one argument more
SELECT DISTINCT a.oid::regprocedure, b.oid::regprocedure FROM functions a JOIN pg_proc b ON b.proname = a.proname AND b.pronargs <> a.pronargs
WHERE a.prokind = 'a' AND b.prokind = 'a';
SELECT oid::regprocedure FROM functions WHERE prokind = 'a' AND (provariadic <> 0 OR pronargdefaults > 0);
-- and they are no more parallel than their functions
SELECT f.oid::regprocedure, p.oid::regprocedure FROM functions f JOIN pg_aggregate a ON a.aggfnoid = f.oid
	JOIN pg_proc p ON p.oid IN (a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn)
WHERE p.proparallel <> f.proparallel AND f.proparallel = 's';
-- an aggregate with a state that is combined in parallel can be serialised
SELECT aggfnoid::regprocedure FROM functions f JOIN pg_aggregate a ON a.aggfnoid = f.oid
WHERE aggcombinefn <> 0 AND aggtranstype = 'internal'::regtype AND (aggserialfn = 0 OR aggdeserialfn = 0);

-- everything has a comment
SELECT oid::regprocedure FROM functions WHERE obj_description(oid, 'pg_proc') IS NULL;
SELECT pg_describe_object(classid, objid, 0) FROM members
WHERE classid IN ('pg_type'::regclass, 'pg_operator'::regclass, 'pg_opclass'::regclass, 'pg_cast'::regclass, 'pg_am'::regclass, 'pg_class'::regclass)
	AND obj_description(objid, (classid::regclass)::name) IS NULL
	-- those of types that come with others
	AND NOT EXISTS (SELECT FROM pg_type t WHERE t.oid = objid AND (typelem <> 0 AND typlen = -1 AND typcategory = 'A' OR typrelid <> 0)) ORDER BY 1;
-- the comment of an operator's function says whose it is
SELECT o.oid::regoperator, obj_description(p.oid, 'pg_proc') FROM members m JOIN pg_operator o ON m.classid = 'pg_operator'::regclass AND m.objid = o.oid JOIN pg_proc p ON p.oid = o.oprcode
WHERE obj_description(p.oid, 'pg_proc') <> 'implementation of ' || o.oprname || ' operator'
	-- those of sorting have their own
	AND NOT EXISTS (SELECT FROM pg_operator other WHERE other.oprcode = p.oid AND other.oid <> o.oid) ORDER BY 1;
-- functions that take internal arguments return internal ones, or cannot be called from SQL anyhow
SELECT oid::regprocedure FROM functions WHERE prorettype = 'internal'::regtype AND NOT 'internal'::regtype = ANY (proargtypes::oid[]);
-- commutators and negators name each other
SELECT o.oid::regoperator FROM members m JOIN pg_operator o ON m.classid = 'pg_operator'::regclass AND m.objid = o.oid
	LEFT JOIN pg_operator c ON c.oid = o.oprcom LEFT JOIN pg_operator n ON n.oid = o.oprnegate
WHERE c.oprcom <> o.oid OR c.oprleft <> o.oprright OR n.oprnegate <> o.oid;
-- operators that search have estimators
SELECT o.oid::regoperator FROM members m JOIN pg_operator o ON m.classid = 'pg_operator'::regclass AND m.objid = o.oid WHERE o.oprresult = 'bool'::regtype AND (o.oprrest = 0 OR o.oprjoin = 0);

-- names of arguments and columns need no quotes, nor do they in a list of columns
SELECT oid::regprocedure, name FROM functions, unnest(proargnames) name WHERE name IN (SELECT word FROM pg_get_keywords() WHERE catcode IN ('R', 'T'));
SELECT attrelid::regclass, attname FROM members m JOIN pg_attribute ON m.classid = 'pg_class'::regclass AND attrelid = m.objid
WHERE attname IN (SELECT word FROM pg_get_keywords() WHERE catcode IN ('R', 'T'));

-- the library's version is that of the objects, and is refused where a higher one is needed
SELECT gpuvec_library_version() = extversion AS same, gpuvec_library_version(extversion) = extversion AS enough,
	gpuvec_library_version('0.0.9') = extversion AS more FROM pg_extension WHERE extname = 'gpuvec';
\set VERBOSITY sqlstate
SELECT gpuvec_library_version('0.2.0.1');
SELECT gpuvec_library_version('0.10');
SELECT gpuvec_library_version('1');
\set VERBOSITY default

-- what the index can do
CREATE TABLE docs (id int, tokens idset);
CREATE INDEX docs_tokens ON docs USING gpuvec (tokens);
SELECT property, pg_index_column_has_property('docs_tokens', 1, property) AS has
FROM unnest('{asc,desc,nulls_first,nulls_last,orderable,distance_orderable,returnable,search_array,search_nulls,bogus}'::text[]) property;
SELECT property, pg_index_has_property('docs_tokens', property) AS has FROM unnest('{clusterable,index_scan,bitmap_scan,backward_scan}'::text[]) property;
SELECT property, pg_indexam_has_property(oid, property) AS has FROM pg_am, unnest('{can_order,can_unique,can_multi_col,can_exclude,can_include}'::text[]) property WHERE amname = 'gpuvec';
SELECT pg_index_column_has_property('docs_tokens', 2, 'distance_orderable') AS no_such_column;
DROP TABLE docs;
DROP VIEW functions, members;
