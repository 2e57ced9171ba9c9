/* sql/gpuvec--0.2.0--0.3.0.sql */

\echo Use "ALTER EXTENSION gpuvec UPDATE TO '0.3.0'" to load this file. \quit

-- an older library is told at once

SELECT gpuvec_library_version('0.3.0'::text);
