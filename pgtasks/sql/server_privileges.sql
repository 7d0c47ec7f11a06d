-- Says what the current role may do, by the rights that each part of the system needs.
--
-- Returns one PrivilegeRow. docs/roles.md lists the grants.
SELECT
    has_function_privilege(
        'pgtasks.enqueue(text, jsonb, text, integer, timestamptz, interval, text, integer, interval, jsonb, text)',
        'EXECUTE'
    ) AS may_enqueue,
    (
        SELECT bool_and(has_table_privilege('pgtasks.' || r.name, r.needed))
        FROM (
            VALUES
            ('tasks', 'SELECT'), ('tasks', 'UPDATE'), ('tasks', 'DELETE'), ('leases', 'SELECT'), ('leases', 'INSERT'),
            ('leases', 'UPDATE'), ('leases', 'DELETE'), ('history', 'INSERT'), ('attempts', 'INSERT'),
            ('dead_letters', 'INSERT'), ('workers', 'INSERT'), ('task_types', 'UPDATE')
        ) AS r (name, needed)
    ) AS may_work,
    pg_has_role(current_user, n.nspowner, 'USAGE') AS is_owner
FROM pg_namespace AS n
WHERE n.nspname = 'pgtasks'
