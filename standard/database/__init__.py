"""PostgreSQL: the embedded server, the pool, migrations."""
