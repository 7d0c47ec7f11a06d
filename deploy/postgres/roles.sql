-- The roles of compose.yaml, made when PostgreSQL starts with an empty data folder: one that owns the
-- schema and migrates, and one for workers, whose rights `pgtasks grant` gives (docs/roles.md).
-- Neither is a superuser.
CREATE ROLE pgtasks_owner LOGIN PASSWORD 'pgtasks';
GRANT CREATE ON DATABASE postgres TO pgtasks_owner;

CREATE ROLE pgtasks_worker LOGIN PASSWORD 'pgtasks';
-- So that status and metrics see other roles' long transactions.
GRANT pg_monitor TO pgtasks_worker;
