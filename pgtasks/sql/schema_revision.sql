-- Says which revision the schema is at. Returns one row, or none.
SELECT v.version_num FROM pgtasks.schema_version AS v
