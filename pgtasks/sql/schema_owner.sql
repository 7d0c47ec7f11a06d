-- Says who owns the schema, and whether the current role may act as its owner.
--
-- Returns one OwnerRow, or none without the schema.
SELECT
    r.rolname::text AS owner,
    current_user::text AS username,
    pg_has_role(current_user, r.oid, 'USAGE') AS may
FROM pg_namespace AS n
INNER JOIN pg_roles AS r ON n.nspowner = r.oid
WHERE n.nspname = 'pgtasks'
