-- Takes 0002_schedules back: schedules and the record of their fires are gone.
DROP VIEW pgtasks.schedule_stats;
DROP TABLE pgtasks.schedule_fires;
DROP TABLE pgtasks.schedules;
DROP FUNCTION pgtasks.schedules_announced();
DROP FUNCTION pgtasks.schedules_changed();
