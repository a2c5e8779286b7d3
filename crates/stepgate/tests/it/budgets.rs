//! Budgets on a gateway that serves: what is taken, refused, shown, reloaded and verified.

mod attack;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::binary::Place;
use crate::http_client::{Gateway, Reply, exchange, proposal, request};
use crate::scene::{kill, python, until};

const BUDGETS: &str = r#"
[budget.payments]
tools = ["bank.send"]
argument = "amount"
limit = "100.00"
per = "principal"
window = "ever"
"#;

const POLICIES: &str = r#"
@id("core") permit (principal, action in Action::"core", resource);
@id("bank") permit (principal, action in [Action::"bank.send", Action::"bank.look"], resource);
@id("ask") @approval("most of the budget is used")
permit (principal, action == Action::"bank.send", resource)
when { context.used has payments && context.used.payments.percent >= 80 };
"#;

/// A bank that keeps its own books, in a directory of the test.
struct Bank {
    state: tempfile::TempDir,
}

impl Bank {
    fn new() -> Self {
        Self { state: tempfile::TempDir::new().unwrap() }
    }

    /// Configures a data directory: the bank, the policies and the budgets.
    fn configure(&self, data: &Path, policies: &str, budgets: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tool_server.py");
        fs::create_dir_all(data.join("policies")).unwrap();
        let config = format!(
            "[policy]\nreload_ms = 20\n\
             [servers.bank]\ncommand = {:?}\nargs = [{script:?}, {:?}, \"--honours-key\", \"--bank\"]\n\
             mode = \"read_only\"\ntimeout_ms = 20000\nshared = true\n\
             [servers.bank.tools.send]\nmode = \"execute_gated\"\nhonours_key = true\n",
            python(),
            self.state.path(),
        );
        fs::write(data.join("stepgate.toml"), config).unwrap();
        fs::write(data.join("policies/all.cedar"), policies).unwrap();
        fs::write(data.join("policies/budgets.toml"), budgets).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    /// What the bank itself has sent, in hundredths.
    fn sent(&self) -> u64 {
        let books = fs::read_to_string(self.file("books")).unwrap_or_default();
        books.lines().map(|line| hundredths(line.split_once(' ').unwrap().1)).sum()
    }
}

/// `1.5` as 150.
fn hundredths(amount: &str) -> u64 {
    let (whole, places) = amount.split_once('.').unwrap_or((amount, ""));
    let places = format!("{places:0<2}");
    assert_eq!(places.trim_end_matches('0').len().max(2), 2, "{amount}");
    whole.parse::<u64>().unwrap() * 100 + places[..2].parse::<u64>().unwrap()
}

/// A gateway's place with a bank behind it.
fn scene(policies: &str, budgets: &str) -> (Place, Bank) {
    let (place, bank) = (Place::new(), Bank::new());
    bank.configure(&place.path(), policies, budgets);
    (place, bank)
}

fn send(gateway: &Gateway, amount: f64) -> Reply {
    gateway.propose(&proposal("bank.send", json!({ "amount": amount, "to": "ann" })))
}

/// The budgets as the command prints them.
fn shown(place: &Place) -> Value {
    let output = place.stepgate(["budget", "--json"], "");
    assert_eq!(output.code, 0, "{output:?}");
    serde_json::from_str(output.stdout.lines().next().unwrap()).unwrap()
}

fn used(place: &Place) -> u64 {
    let shown = shown(place);
    shown["accounts"]
        .as_array()
        .unwrap()
        .first()
        .map_or(0, |account| hundredths(account["used"].as_str().unwrap()))
}

fn verified(place: &Place) {
    let verified = place.stepgate(["verify"], "");
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
}

#[test]
fn a_budget_is_used_asked_about_refused_and_shown() {
    let (place, bank) = scene(POLICIES, BUDGETS);
    let gateway = Gateway::start(&place);
    assert_eq!(send(&gateway, 60.5).json()["outcome"], "SUCCESS");
    // At 80 percent a person is asked, and beyond the limit nobody is.
    let asked = send(&gateway, 19.5).json();
    assert_eq!(asked["outcome"], "APPROVAL_REQUIRED");
    let denied = send(&gateway, 39.51);
    let run_id = denied.headers["stepgate-run"].clone();
    assert_eq!(
        (denied.status, denied.json()["error"]["error_code"].as_str()),
        (403, Some("POLICY_VIOLATION"))
    );
    assert!(!denied.body.contains("payments"), "{}", denied.body);
    assert_eq!((bank.sent(), used(&place)), (6050, 6050));
    // What is left when the person decides is what counts.
    assert_eq!(send(&gateway, 10.0).json()["outcome"], "SUCCESS");
    let approved =
        place.stepgate(["approve", asked["result"]["approval_id"].as_str().unwrap()], "");
    assert_eq!(approved.code, 0, "{approved:?}");
    until("the approved call is done", || bank.sent() == 9000);

    let record = place.stepgate(["runs", "show", &run_id, "--json"], "").stdout;
    assert!(record.contains("BUDGET: `payments`: 60.5 of 100.0 is used, and the call needs 39.51"));
    let words = place.stepgate(["budget"], "").stdout;
    assert!(words.contains("payments: 100.0 of `amount` for each principal for ever"), "{words}");
    assert!(words.contains("90 %") && words.contains("90.0  principal:agent"), "{words}");
    let other = place.stepgate(["budget", "rent"], "");
    assert!(other.code == 1 && other.stderr.contains("there is no budget `rent`"), "{other:?}");
    assert_eq!(gateway.metric("stepgate_budget_used_percent{budget=\"payments\"}"), 90);
    assert_eq!(gateway.send("GET", "/v1/budgets", &gateway.agent, "").status, 403);
    let reply = gateway.send("GET", "/v1/budgets?budget=payments&limit=0", &gateway.operator, "");
    assert_eq!(reply.json()["budgets"][0]["is_cut"], true);

    let explained = |args: &[&str]| {
        let command = ["policy", "explain", "bank.send", "to=ann"];
        place.stepgate([&command, args].concat(), "").stdout
    };
    let ask = explained(&["amount=10"]);
    assert!(ask.contains("bank.send: require_approval"), "{ask}");
    assert!(
        ask.contains("budget `payments`: 90.0 of 100.0 is used, and the call takes 10.0"),
        "{ask}"
    );
    assert!(explained(&["amount=11"]).contains("bank.send: deny"));
    assert!(explained(&["amount=11", "--used", "payments=12.50"]).contains("bank.send: permit"));
    assert!(explained(&["amount=11", "--as", "bob"]).contains("bank.send: permit"));
    drop(gateway);
    verified(&place);
    // Without a gateway the same is read from the store.
    assert_eq!(used(&place), 9000);
}

#[test]
fn agents_do_not_see_the_events_of_budgets() {
    let (place, _bank) = scene(POLICIES, BUDGETS);
    let gateway = Gateway::start(&place);
    let run_id = send(&gateway, 1.0).headers["stepgate-run"].clone();
    let events = |token: &str| {
        let path = format!("/v1/events?run={run_id}");
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.write_all(request("GET", &path, token, &[], "").as_bytes()).unwrap();
        let mut lines = BufReader::new(stream).lines();
        let mut types = Vec::new();
        while types.last().is_none_or(|last| last != "tool_succeeded") {
            let line = lines.next().unwrap().unwrap();
            types.extend(line.strip_prefix("event: ").map(str::to_owned));
        }
        types
    };
    let all = events(&gateway.operator);
    assert!(all.contains(&"budget_reserved".to_owned()), "{all:?}");
    let own = events(&gateway.agent);
    assert!(!own.iter().any(|name| name.starts_with("budget")), "{own:?}");
}

#[test]
fn budgets_are_reloaded_with_the_policies_as_one_set() {
    let (place, bank) = scene(POLICIES, BUDGETS);
    let mut gateway = Gateway::start(&place);
    assert_eq!(send(&gateway, 50.0).json()["outcome"], "SUCCESS");
    let file = place.path().join("policies/budgets.toml");
    // An error leaves the set before in force, policies and budgets.
    fs::write(bank.file("new"), BUDGETS.replace("\"100.00\"", "0")).unwrap();
    fs::rename(bank.file("new"), &file).unwrap();
    fs::write(place.path().join("policies/all.cedar"), format!("{POLICIES}\n// another text"))
        .unwrap();
    gateway.until_it_says("policies not reloaded");
    assert_eq!(shown(&place)["limit"], "100.0");
    let checked = place.stepgate(["policy", "check"], "");
    assert!(checked.code == 1 && checked.stdout.contains("is not above zero"), "{checked:?}");
    // Another limit holds for what is used already.
    fs::write(&file, BUDGETS.replace("100.00", "50.01")).unwrap();
    until("the other limit is in force", || shown(&place)["limit"] == "50.01");
    assert_eq!(send(&gateway, 0.02).status, 403);
    assert_eq!(shown(&place)["accounts"][0]["percent"], 100);
    // Without the file there is no budget.
    fs::remove_file(&file).unwrap();
    until("there is no budget", || {
        place.stepgate(["budget"], "").stdout.contains("there is no budget")
    });
    assert_eq!(send(&gateway, 0.02).json()["outcome"], "SUCCESS");
    assert_eq!(bank.sent(), 5002);
    drop(gateway);
    verified(&place);
}

#[test]
fn what_is_in_doubt_is_kept_and_what_was_not_done_is_given_back() {
    let (place, bank) = scene(POLICIES, BUDGETS);
    fs::write(
        place.path().join("stepgate.toml"),
        fs::read_to_string(place.path().join("stepgate.toml"))
            .unwrap()
            .replace("honours_key = true", "in_doubt = \"ask\""),
    )
    .unwrap();
    let gateway = Gateway::start(&place);
    fs::write(bank.file("hold-before"), "").unwrap();
    let body = proposal("bank.send", json!({ "amount": 70, "to": "ann" }));
    let (address, sent) =
        (gateway.address, request("POST", "/v1/steps", &gateway.agent, &[], &body));
    let client = std::thread::spawn(move || exchange(address, sent.as_bytes()));
    until("the bank has the call", || bank.file("hold-before.reached").exists());
    kill(gateway);
    assert!(client.join().unwrap().is_none(), "there is no answer");
    fs::remove_file(bank.file("hold-before")).unwrap();
    let gateway = Gateway::start(&place);
    assert_eq!(used(&place), 7000, "it is in doubt");
    assert_eq!(send(&gateway, 31.0).status, 403);
    let runs = place.stepgate(["runs", "--json"], "").stdout;
    let runs = runs.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let open: Vec<Value> = runs.filter(|run| run["status"] == "started").collect();
    let run_id = open[0]["tool_run_id"].as_str().unwrap_or_else(|| panic!("{open:?}"));
    let resolved = place.stepgate(["runs", "resolve", run_id, "--failed"], "");
    assert_eq!(resolved.code, 12, "{resolved:?}");
    assert_eq!(used(&place), 0);
    assert_eq!(send(&gateway, 31.0).json()["outcome"], "SUCCESS");
    drop(gateway);
    verified(&place);
}

/// Changes the file behind the gateway's back, without the triggers that would refuse.
fn tamper(place: &Place, sql: &str) {
    let connection = rusqlite::Connection::open(place.database()).unwrap();
    let triggers = "SELECT group_concat('DROP TRIGGER ' || name, '; ') FROM sqlite_schema
                    WHERE type = 'trigger'";
    let drops: String = connection.query_row(triggers, [], |row| row.get(0)).unwrap();
    connection.execute_batch(&format!("{drops}; {sql}")).unwrap();
}

#[test]
fn an_account_that_is_not_the_sum_of_its_charges_is_found() {
    let rows = [
        ("UPDATE budget_accounts SET used = used - 1", "is used and"),
        ("UPDATE budget_accounts SET account_key = 'principal:other'", "is gone"),
        ("DELETE FROM budget_accounts", "is gone"),
        (
            "INSERT INTO budget_accounts (budget, account_window, account_key, used) VALUES ('x', 'ever', 'all', 1)",
            "nothing charged",
        ),
        (
            "UPDATE events SET payload_json = replace(payload_json, '\"amount\":\"1.5\"', '\"amount\":\"0.5\"')",
            "a charge is not what the call needs",
        ),
        ("DELETE FROM events WHERE event_type = 'budget_reserved'", "digest"),
        ("UPDATE budget_accounts SET account_window = 'never'", "column account_window"),
    ];
    let (place, _bank) = scene(POLICIES, BUDGETS);
    let gateway = Gateway::start(&place);
    assert_eq!(send(&gateway, 1.5).json()["outcome"], "SUCCESS");
    gateway.signal(rustix::process::Signal::TERM);
    assert_eq!(gateway.end().0, Some(0));
    verified(&place);
    let original = fs::read(place.database()).unwrap();
    for (sql, found) in rows {
        tamper(&place, sql);
        let output = place.stepgate(["verify"], "");
        assert!(output.code != 0 && output.stdout.contains(found), "{sql}: {output:?}");
        fs::write(place.database(), &original).unwrap();
        let _ = fs::remove_file(place.path().join("stepgate.db-wal"));
    }
    verified(&place);
}
