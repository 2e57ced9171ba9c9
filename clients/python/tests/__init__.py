"""Tests against the server that PGHOST, PGUSER and PGDATABASE name; most need one."""
