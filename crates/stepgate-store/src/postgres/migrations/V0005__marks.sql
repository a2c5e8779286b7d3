-- Which sandbox an executor's name stands for: the mark that was found in it by the node that came first. A node
-- that finds another one would recover calls that were sent somewhere else.
CREATE TABLE marks (
  executor_id text COLLATE "C" PRIMARY KEY,
  mark text NOT NULL
);
