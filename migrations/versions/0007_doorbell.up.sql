-- 0007_doorbell: a producer's half of the doorbell that costs less.
--
-- Locks: none on any table; sessions that insert while this commits go on with the one or the other.

-- The protocol is unchanged (pgtasks/engine/bell.py has it, and its proof): once per statement and
-- queue, a shared lock, or else a ring. Nearly every statement adds to a single queue, and one
-- aggregate tells; to open a cursor over the distinct queues cost more than all the rest.
CREATE OR REPLACE FUNCTION pgtasks.tasks_inserted() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    lowest text;
    highest text;
    bell record;
BEGIN
    SELECT pg_catalog.min(i.queue), pg_catalog.max(i.queue) INTO lowest, highest FROM inserted AS i;
    IF lowest OPERATOR(pg_catalog.=) highest THEN
        IF NOT pg_catalog.pg_try_advisory_xact_lock_shared(pg_catalog.hashtextextended(lowest, 7074617)) THEN
            PERFORM pg_catalog.pg_notify('pgtasks', lowest);
        END IF;
        RETURN NULL;
    END IF;
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
