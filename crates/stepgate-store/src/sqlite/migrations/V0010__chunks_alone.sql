-- All of their rows are in chunks.
DROP TABLE old_journal;
DROP TABLE old_records;
DROP TABLE old_checkpoints;
