//! Checks whether the triggers that refuse changes are still those of the migrations. An owner of the tables
//! can drop or disable one; the digests reveal what was changed meanwhile.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::link::Query;
use super::schema::MIGRATIONS;
use crate::tables::schema_differences;

const CHANGED: &str = "was changed or disabled";

/// The triggers, and their functions, in the catalog.
pub(super) fn found() -> [Query; 2] {
    let triggers = "SELECT t.tgname::text, t.tgenabled::text, pg_get_triggerdef(t.oid, true)
                    FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
                    WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace
                    ORDER BY 1, 3";
    let functions = r"SELECT proname::text, prosrc FROM pg_proc
                      WHERE pronamespace = current_schema()::regnamespace
                        AND proname LIKE 'stepgate\_%' ORDER BY 1";
    [Query::new(triggers, Vec::new()), Query::new(functions, Vec::new())]
}

/// The differences from the migrations, a line each.
pub(super) fn differences(rows: &[Vec<Row>]) -> Vec<String> {
    let text = |row: &Row, column: usize| row.try_get::<_, String>(column).unwrap_or_default();
    let [triggers, functions] = rows else {
        return vec!["the triggers cannot be read".into()];
    };
    let triggers = triggers
        .iter()
        .map(|row| (text(row, 0), format!("{} {}", text(row, 1), shape(&text(row, 2)))))
        .collect();
    let functions = functions.iter().map(|row| (text(row, 0), text(row, 1))).collect();
    let expected = Guards::expected();
    let mut found = schema_differences("the trigger ", CHANGED, &expected.triggers, &triggers);
    found.extend(schema_differences("the function ", CHANGED, &expected.functions, &functions));
    found
}

/// The triggers and functions of the migrations, by name.
#[derive(Debug, Default)]
struct Guards {
    /// Whether a trigger is enabled, and its shape.
    triggers: BTreeMap<String, String>,
    /// The bodies of the functions.
    functions: BTreeMap<String, String>,
}

impl Guards {
    fn expected() -> Self {
        let mut guards = Self::default();
        for migration in MIGRATIONS {
            guards.read(migration);
        }
        guards
    }

    fn read(&mut self, migration: &str) {
        let mut statements = String::new();
        // The text between two `$$` is the body of the function, or of the block, before them.
        for (number, part) in migration.split("$$").enumerate() {
            if number % 2 == 0 {
                statements.push_str(part);
                continue;
            }
            let name = statements.rsplit_once("CREATE FUNCTION ").map(|(_, after)| after);
            let is_function = !statements.trim_end().ends_with("DO");
            if let Some((name, _)) = name.filter(|_| is_function).and_then(|it| it.split_once('('))
            {
                self.functions.insert(name.to_owned(), part.to_owned());
            }
        }
        let lines = statements.lines().filter(|line| !line.trim_start().starts_with("--"));
        let statements: Vec<&str> = lines.collect();
        for statement in statements.join("\n").split(';') {
            let statement = statement.trim();
            let name = |rest: &str| rest.split_whitespace().next().unwrap_or_default().to_owned();
            if let Some(rest) = statement.strip_prefix("CREATE TRIGGER ") {
                let refuses = ["stepgate_refuse(", "stepgate_keep_"];
                let is_always = refuses.iter().any(|function| statement.contains(function));
                let enabled = if is_always { 'A' } else { 'O' };
                self.triggers.insert(name(rest), format!("{enabled} {}", shape(statement)));
            } else if let Some(rest) = statement.strip_prefix("DROP TRIGGER ") {
                self.triggers.remove(&name(rest));
            }
        }
    }
}

/// A definition in a form that both sides share. PostgreSQL rewrites conditions, so only the presence of a
/// condition counts.
fn shape(definition: &str) -> String {
    let words: Vec<&str> = definition.split_whitespace().collect();
    let text = words.join(" ").replace('"', "");
    match (text.split_once(" WHEN "), text.split_once(" EXECUTE FUNCTION ")) {
        (Some((before, _)), Some((_, after))) => {
            format!("{before} WHEN … EXECUTE FUNCTION {after}")
        }
        (Some(_) | None, Some(_) | None) => text,
    }
}

#[cfg(test)]
mod tests;
