-- How far each reader of the events has come: the last position that it has finished with, or a time. It belongs
-- to no chain, and its rows change.
CREATE TABLE cursors (
  position INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  reached INTEGER NOT NULL,
  error TEXT
) STRICT;
