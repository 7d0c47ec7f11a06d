-- 0005_retention: history and failed attempts go after a time; queues and tasks that keep none.
--
-- Locks: both columns have a constant default, so no row is rewritten.

-- Whether tasks of the queue that completed leave a row in history. Those that were cancelled,
-- failed or died always leave their traces.
ALTER TABLE pgtasks.queues ADD COLUMN keep_completed boolean NOT NULL DEFAULT true;

-- Removes what is older than `keep`: one day's partition of history or attempts as a whole, or,
-- when there is none, a batch of rows that lie in a default partition. Says what went; nothing
-- more is to be done when both are 0. Each call is meant to be a transaction of its own.
--
-- Dropping a partition locks its parent against readers and writers for a moment. It waits for
-- that lock for a fifth of a second at most, because whatever comes after it waits as well
-- (completions do, claims do not); then it fails with 55P03 and is tried again later. Whoever
-- comes while another one prunes has nothing to do.
-- It runs as its owner, since a worker may not drop tables; so that a slip of the pen cannot
-- empty the history, it refuses to keep less than an hour.
CREATE FUNCTION pgtasks.prune(
    keep interval,
    row_limit integer DEFAULT 5000,
    OUT partitions integer,
    OUT rows integer
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET lock_timeout = '200ms'
AS $$
DECLARE
    parent text;
    child text;
BEGIN
    partitions := 0;
    rows := 0;
    IF prune.keep IS NULL OR prune.keep < interval '1 hour' THEN
        RAISE 'pgtasks: keep must be at least an hour, got %', prune.keep USING ERRCODE = '22023';
    END IF;
    IF NOT pg_try_advisory_xact_lock(hashtextextended('prune', 7074618)) THEN
        RETURN;
    END IF;
    -- Days are compared as text, which holds for years of four digits only.
    keep := least(prune.keep, interval '1000 years');
    SELECT c.relname INTO child
    FROM pg_inherits i
    INNER JOIN pg_class c ON c.oid = i.inhrelid
    INNER JOIN pg_class p ON p.oid = i.inhparent
    WHERE p.relnamespace = 'pgtasks'::regnamespace AND p.relname IN ('history', 'attempts')
        AND c.relname ~ ('^' || p.relname || '_[0-9]{8}$')
        AND right(c.relname, 8) < to_char(clock_timestamp() - prune.keep, 'YYYYMMDD')
    ORDER BY right(c.relname, 8), c.relname
    LIMIT 1;
    IF FOUND THEN
        EXECUTE format('DROP TABLE pgtasks.%I', child);
        partitions := 1;
        RETURN;
    END IF;
    FOREACH parent IN ARRAY ARRAY['history', 'attempts'] LOOP
        EXECUTE format(
            'WITH old AS (SELECT d.ctid FROM pgtasks.%1$I d WHERE d.finished_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED), '
            'gone AS (DELETE FROM pgtasks.%1$I d WHERE d.ctid = ANY(ARRAY(SELECT o.ctid FROM old o)) RETURNING 1) '
            'SELECT count(*) FROM gone',
            parent || '_default'
        ) INTO rows USING clock_timestamp() - prune.keep, prune.row_limit;
        EXIT WHEN rows > 0;
    END LOOP;
END
$$;

REVOKE ALL ON FUNCTION pgtasks.prune(interval, integer) FROM public;
