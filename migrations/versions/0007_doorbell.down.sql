-- Undoes 0007_doorbell.
CREATE OR REPLACE FUNCTION pgtasks.tasks_inserted() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    bell record;
BEGIN
    FOR bell IN
        SELECT i.queue, pg_catalog.row_number() OVER () OPERATOR(pg_catalog.<=) 100 AS is_asked
        FROM (SELECT DISTINCT inserted.queue FROM inserted) AS i
    LOOP
        IF bell.is_asked THEN
            CONTINUE WHEN pg_catalog.pg_try_advisory_xact_lock_shared(
                pg_catalog.hashtextextended(bell.queue, 7074617)
            );
        END IF;
        PERFORM pg_catalog.pg_notify('pgtasks', bell.queue);
    END LOOP;
    RETURN NULL;
END
$$;
