-- Tells whether a role of this name exists on the server.
--
-- Parameter: role, spelt exactly. Returns one row: true or false.
SELECT EXISTS(SELECT FROM pg_roles AS r WHERE r.rolname = %(role)s::text)
