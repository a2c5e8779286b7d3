-- How far each reader of the events has come: the last position that it has finished with, or a time. It belongs
-- to no chain, and its rows change. The owner is the node that reads: another one takes the cursor when the
-- owner's lease is over.
CREATE TABLE cursors (
  position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  reached bigint NOT NULL,
  error text,
  owner bigint
);
