-- What one commit adds to a trace is one row: the entries of the journal, a checkpoint and the record, packed
-- together (docs/decisions/32-layout.md). `sequence_number` is that of its first entry, where it has one. The
-- link is the CLOSE of the record, or else the OPEN of the genesis.
CREATE TABLE chunks (
  position        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  trace_id        text COLLATE "C" NOT NULL,
  sequence_number bigint,
  entries         bigint NOT NULL,
  checkpoints     bigint NOT NULL,
  records         bigint NOT NULL,
  link_number     bigint,
  link_prev       bytea,
  link_digest     bytea,
  packed          bytea NOT NULL,
  UNIQUE (trace_id, sequence_number)
);

CREATE TRIGGER chunks_no_delete BEFORE DELETE ON chunks FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never deleted');
CREATE TRIGGER chunks_no_truncate BEFORE TRUNCATE ON chunks FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER chunks_no_update BEFORE UPDATE ON chunks FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never changed');
ALTER TABLE chunks ENABLE ALWAYS TRIGGER chunks_no_delete;
ALTER TABLE chunks ENABLE ALWAYS TRIGGER chunks_no_truncate;
ALTER TABLE chunks ENABLE ALWAYS TRIGGER chunks_no_update;

-- The rows of these are moved into chunks, some at a time; the next version is without the tables. Under other
-- names, so that no node of an older version reads a journal of which a part is moved.
DROP TRIGGER journal_no_delete ON journal;
DROP TRIGGER journal_no_truncate ON journal;
DROP TRIGGER journal_no_update ON journal;
DROP TRIGGER records_no_delete ON records;
DROP TRIGGER records_no_truncate ON records;
DROP TRIGGER records_no_update ON records;
DROP TRIGGER checkpoints_no_delete ON checkpoints;
DROP TRIGGER checkpoints_no_truncate ON checkpoints;
DROP TRIGGER checkpoints_no_update ON checkpoints;
ALTER TABLE journal RENAME TO old_journal;
ALTER TABLE records RENAME TO old_records;
ALTER TABLE checkpoints RENAME TO old_checkpoints;
