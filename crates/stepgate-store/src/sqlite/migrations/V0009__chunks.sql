-- What one commit adds to a trace is one row: the entries of the journal, a checkpoint and the record, packed
-- together (docs/decisions/32-layout.md). `sequence_number` is that of its first entry, where it has one. The
-- link is the CLOSE of the record, or else the OPEN of the genesis.
CREATE TABLE chunks (
  position        INTEGER PRIMARY KEY,
  trace_id        TEXT NOT NULL,
  sequence_number INTEGER,
  entries         INTEGER NOT NULL,
  checkpoints     INTEGER NOT NULL,
  records         INTEGER NOT NULL,
  link_number     INTEGER,
  link_prev       BLOB,
  link_digest     BLOB,
  packed          BLOB NOT NULL,
  UNIQUE (trace_id, sequence_number)
) STRICT;

CREATE TRIGGER chunks_no_replace BEFORE INSERT ON chunks
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM chunks WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM chunks WHERE trace_id = NEW.trace_id AND sequence_number = NEW.sequence_number)
  OR (NEW.records > 0 AND EXISTS (SELECT 1 FROM chunks WHERE trace_id = NEW.trace_id AND records > 0))
BEGIN
  SELECT RAISE(ROLLBACK, 'chunks: there is such a row already');
END;

CREATE TRIGGER chunks_no_delete BEFORE DELETE ON chunks
BEGIN
  SELECT RAISE(ROLLBACK, 'chunks: rows are never deleted');
END;

CREATE TRIGGER chunks_no_update BEFORE UPDATE ON chunks
BEGIN
  SELECT RAISE(ROLLBACK, 'chunks: rows are never changed');
END;

-- The rows of these are moved into chunks, some at a time; the next version is without the tables.
DROP TRIGGER journal_no_replace;
DROP TRIGGER journal_no_delete;
DROP TRIGGER journal_no_update;
DROP TRIGGER records_no_replace;
DROP TRIGGER records_no_delete;
DROP TRIGGER records_no_update;
DROP TRIGGER checkpoints_no_replace;
DROP TRIGGER checkpoints_no_delete;
DROP TRIGGER checkpoints_no_update;
ALTER TABLE journal RENAME TO old_journal;
ALTER TABLE records RENAME TO old_records;
ALTER TABLE checkpoints RENAME TO old_checkpoints;
