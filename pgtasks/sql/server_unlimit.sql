-- Takes the time limit off the statements of the transaction.
--
-- Returns one row: the setting. Local to the transaction, since a transaction pooler knows no other scope.
SELECT set_config('statement_timeout', '0', true)
