-- How much is used of each account of a budget, in ten-thousandths: the sum of its events `budget_reserved` without
-- those that are `budget_released`. A row changes in the commit that has the event.
CREATE TABLE budget_accounts (
  position       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  budget         text COLLATE "C" NOT NULL,
  account_window text COLLATE "C" NOT NULL,
  account_key    text COLLATE "C" NOT NULL,
  used           bigint NOT NULL CHECK (used >= 0),
  UNIQUE (budget, account_window, account_key)
);

CREATE TRIGGER budget_accounts_no_delete BEFORE DELETE ON budget_accounts FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never deleted');
CREATE TRIGGER budget_accounts_no_truncate BEFORE TRUNCATE ON budget_accounts FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER budget_accounts_fixed BEFORE UPDATE OF position, budget, account_window, account_key
  ON budget_accounts FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('what names an account never changes');
ALTER TABLE budget_accounts ENABLE ALWAYS TRIGGER budget_accounts_no_delete;
ALTER TABLE budget_accounts ENABLE ALWAYS TRIGGER budget_accounts_no_truncate;
ALTER TABLE budget_accounts ENABLE ALWAYS TRIGGER budget_accounts_fixed;
