//! A budget under attack: many clients, nodes that are killed and stopped, and a bank that keeps its own books. The books
//! never say more than the budget, and the accounts are the sum of what was charged.

use std::fs::File;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Bank, hundredths, shown, verified};
use crate::binary::Place;
use crate::http_client::{Gateway, Reply, exchange_within, proposal, request};
use crate::nodes::House;
use crate::scene::until_within;

const CLIENTS: usize = 64;
/// The limit, in hundredths.
const LIMIT: u64 = 10_000;
/// How long a client waits for an answer before it asks another node.
const ANSWER: Duration = Duration::from_secs(3);
/// How long a node is stopped: for longer than its lease.
const STOPPED: Duration = Duration::from_millis(2500);
/// How long anything may take before it hangs.
const HANGS: Duration = Duration::from_secs(90);

const POLICIES: &str = r#"@id("all") permit (principal, action, resource);"#;

/// One account for everyone, so that all clients on all nodes meet at one row.
const BUDGETS: &str = r#"
[budget.payments]
tools = ["bank.send"]
argument = "amount"
limit = "100.00"
per = "all"
window = "ever"
"#;

/// Starts a gateway that says what it says into a file: no thread has to read it for it to go on.
fn serve(place: &Place, address: &str) -> Gateway {
    let path = place.path().parent().unwrap().join("log");
    let log = File::options().create(true).append(true).open(path).unwrap();
    let mut command = place.command(["serve", "--quiet", "--bind", address]);
    Gateway::of(command.stderr(Stdio::from(log)), &place.path())
}

/// What the clients share.
struct Crowd<'a> {
    addresses: &'a [SocketAddr],
    agent: &'a str,
    is_over: &'a AtomicBool,
    sent: &'a AtomicUsize,
    denied: &'a AtomicUsize,
}

impl Crowd<'_> {
    /// Sends one payment after the other, each until it has an outcome, on any node. The amounts that were sent.
    fn client(&self, number: usize) -> u64 {
        let mut spent = 0;
        for round in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let amount = 5 + (number * 7 + round * 5) % 21;
            let body = proposal("bank.send", json!({ "amount": amount as f64 / 100.0, "to": "x" }));
            let outcome = self.outcome(&body, number + round);
            match outcome.status {
                200 => {
                    assert_eq!(outcome.json()["outcome"], "SUCCESS", "{outcome:?}");
                    spent += amount as u64;
                    self.sent.fetch_add(1, Ordering::Relaxed);
                }
                403 => drop(self.denied.fetch_add(1, Ordering::Relaxed)),
                _ => panic!("{outcome:?}"),
            }
        }
        spent
    }

    fn outcome(&self, body: &str, first: usize) -> Reply {
        let sent = request("POST", "/v1/steps", self.agent, &[], body);
        let deadline = Instant::now() + HANGS;
        for &address in self.addresses.iter().cycle().skip(first % self.addresses.len()) {
            match exchange_within(address, sent.as_bytes(), ANSWER) {
                Some(reply) if [200, 403].contains(&reply.status) => return reply,
                None | Some(Reply { status: 409 | 429 | 500.., .. }) => {
                    thread::sleep(Duration::from_millis(50));
                }
                Some(reply) => panic!("{reply:?}"),
            }
            assert!(Instant::now() < deadline, "there is no outcome of {body}");
        }
        unreachable!("there are nodes")
    }
}

/// Lets a crowd pay while something happens, until the budget is used up. What the clients were told was sent.
fn crowd(
    addresses: &[SocketAddr],
    agent: &str,
    bank: &Bank,
    mut trouble: impl FnMut(usize),
) -> (u64, usize) {
    let (is_over, sent, denied) =
        (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let crowd = Crowd { addresses, agent, is_over: &is_over, sent: &sent, denied: &denied };
    let begin = Instant::now();
    let mut times = 0;
    let told = thread::scope(|scope| {
        let crowd = &crowd;
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || crowd.client(number))).collect();
        // Until every client can have been refused, and each kind of trouble came at least twice.
        while denied.load(Ordering::Relaxed) < 2 * CLIENTS || times < 4 {
            trouble(times);
            times += 1;
            assert!(bank.sent() <= LIMIT, "the bank has sent {}", bank.sent());
            assert!(
                begin.elapsed() < HANGS,
                "{} sent, {} denied",
                bank.sent(),
                denied.load(Ordering::Relaxed)
            );
        }
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    let elapsed = begin.elapsed();
    println!(
        "{} payments, {} denied, trouble {times} times in {elapsed:.1?}",
        sent.load(Ordering::Relaxed),
        denied.load(Ordering::Relaxed)
    );
    (told, times)
}

/// What must hold when everything is over: told ≤ books ≤ used ≤ limit, and next to nothing of the limit is left.
fn settled(place: &Place, gateway: &Gateway, bank: &Bank, told: u64) {
    until_within(HANGS, "every run is over", || {
        let open = gateway.send("GET", "/v1/runs?status=started", &gateway.operator, "");
        open.status == 200 && open.json()["runs"] == Value::Array(vec![])
    });
    let used = hundredths(shown(place)["accounts"][0]["used"].as_str().unwrap());
    let sent = bank.sent();
    println!("told {told}, the bank's books {sent}, used {used}, limit {LIMIT}");
    assert!(told <= sent && sent <= used && used <= LIMIT, "{told} {sent} {used}");
    assert!(used > LIMIT - 26, "the limit was not reached: {used}");
    verified(place);
}

#[test]
fn three_nodes_that_are_killed_and_stopped_do_not_spend_more_than_the_budget() {
    let (house, bank) = (House::new(), Bank::new());
    let places = ["first", "second", "third"].map(|name| house.alone(name));
    for place in &places {
        bank.configure(&place.path(), POLICIES, BUDGETS);
    }
    let mut nodes: Vec<Option<Gateway>> =
        places.iter().map(|place| Some(serve(place, "127.0.0.1:0"))).collect();
    let addresses: Vec<SocketAddr> =
        nodes.iter().map(|node| node.as_ref().unwrap().address).collect();
    let agent = nodes[0].as_ref().unwrap().agent.clone();
    let (told, _) = crowd(&addresses, &agent, &bank, |time| {
        let number = time % 3;
        thread::sleep(Duration::from_millis(400));
        match time % 2 {
            0 => {
                // Dropping it kills it.
                drop(nodes[number].take());
                thread::sleep(Duration::from_millis(300));
                nodes[number] = Some(serve(&places[number], &addresses[number].to_string()));
            }
            _ => {
                let node = nodes[number].as_ref().unwrap();
                node.signal(Signal::STOP);
                thread::sleep(STOPPED);
                node.signal(Signal::CONT);
            }
        }
    });
    let node = nodes[0].as_ref().unwrap();
    settled(&places[0], node, &bank, told);
}

#[test]
fn a_gateway_on_sqlite_that_is_killed_does_not_spend_more_than_the_budget() {
    let (place, bank) = (Place::new(), Bank::new());
    bank.configure(&place.path(), POLICIES, BUDGETS);
    let mut gateway = Some(serve(&place, "127.0.0.1:0"));
    let (address, agent) =
        (gateway.as_ref().unwrap().address, gateway.as_ref().unwrap().agent.clone());
    let (told, _) = crowd(&[address], &agent, &bank, |_| {
        thread::sleep(Duration::from_millis(700));
        drop(gateway.take());
        gateway = Some(serve(&place, &address.to_string()));
    });
    settled(&place, gateway.as_ref().unwrap(), &bank, told);
}
