-- Says which release of pgtasks made the schema what it is: the comment that it left.
SELECT obj_description('pgtasks.schema_version'::regclass, 'pg_class') AS release
