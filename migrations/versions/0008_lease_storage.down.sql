-- Undoes 0008_lease_storage.
ALTER TABLE pgtasks.leases RESET (toast_tuple_target);
