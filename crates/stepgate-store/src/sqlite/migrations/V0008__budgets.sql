-- How much is used of each account of a budget, in ten-thousandths: the sum of its events `budget_reserved` without
-- those that are `budget_released`. A row changes in the commit that has the event.
CREATE TABLE budget_accounts (
  position       INTEGER PRIMARY KEY,
  budget         TEXT NOT NULL,
  account_window TEXT NOT NULL,
  account_key    TEXT NOT NULL,
  used           INTEGER NOT NULL CHECK (used >= 0),
  UNIQUE (budget, account_window, account_key)
) STRICT;

CREATE TRIGGER budget_accounts_no_replace BEFORE INSERT ON budget_accounts
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM budget_accounts WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM budget_accounts WHERE budget = NEW.budget
             AND account_window = NEW.account_window AND account_key = NEW.account_key)
BEGIN
  SELECT RAISE(ROLLBACK, 'budget_accounts: there is such a row already');
END;

CREATE TRIGGER budget_accounts_no_delete BEFORE DELETE ON budget_accounts
BEGIN
  SELECT RAISE(ROLLBACK, 'budget_accounts: rows are never deleted');
END;

CREATE TRIGGER budget_accounts_fixed BEFORE UPDATE OF position, budget, account_window, account_key
ON budget_accounts
BEGIN
  SELECT RAISE(ROLLBACK, 'budget_accounts: what names an account never changes');
END;
