//! Tests of the pages, as a browser uses them.

mod forms;
mod logins;
mod pages;

use super::*;

/// A browser that keeps its cookie.
struct Browser<'a> {
    house: &'a House,
    cookie: Option<String>,
}

const FORM: &str = "application/x-www-form-urlencoded";

/// Form fields, with everything except letters and digits escaped.
fn encoded(fields: &[(&str, &str)]) -> String {
    let escape = |text: &str| -> String {
        text.bytes()
            .map(|byte| match byte {
                byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
                byte => format!("%{byte:02X}"),
            })
            .collect()
    };
    let fields = fields.iter().map(|(name, value)| format!("{name}={}", escape(value)));
    fields.collect::<Vec<_>>().join("&")
}

impl<'a> Browser<'a> {
    fn new(house: &'a House) -> Self {
        Self { house, cookie: None }
    }

    /// A browser that is logged in.
    async fn of(house: &'a House, token: &str) -> Self {
        let mut browser = Self::new(house);
        let reply = browser.log_in(token, "").await;
        assert_eq!((reply.status.as_u16(), reply.header("location")), (303, Some("/")));
        browser
    }

    fn request(&self, method: &str, path: &str, body: String) -> Request<Body> {
        let mut request = self.house.request(method, path, "", body);
        if let Some(cookie) = &self.cookie {
            // Other programs on the same host set cookies too.
            let cookies = format!("theme=dark; {cookie}; stepgate-login=stale");
            request.headers_mut().insert("cookie", cookies.parse().unwrap());
        }
        request.headers_mut().insert("content-type", FORM.parse().unwrap());
        request
    }

    async fn get(&self, path: &str) -> Reply {
        self.house.send(self.request("GET", path, String::new())).await
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        self.house.send(self.request("POST", path, encoded(fields))).await
    }

    async fn log_in(&mut self, token: &str, next: &str) -> Reply {
        let reply = self.post("/login", &[("token", token), ("next", next)]).await;
        if let Some(cookie) = reply.header("set-cookie") {
            self.cookie = Some(cookie.split(';').next().unwrap().to_owned());
        }
        reply
    }

    /// The CSRF token of this login's forms.
    async fn csrf(&self) -> String {
        csrf(&self.get("/").await)
    }

    async fn decide(&self, approval: &str, word: &str, note: &str) -> Reply {
        let csrf = self.csrf().await;
        let fields = [("csrf", csrf.as_str()), ("decision", word), ("note", note)];
        self.post(&format!("/approvals/{approval}"), &fields).await
    }
}

fn csrf(reply: &Reply) -> String {
    let (_, rest) = reply.body.split_once("name=\"csrf\" value=\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

/// Whether a page has the buttons to decide.
fn has_buttons(reply: &Reply) -> bool {
    reply.body.contains("value=\"approve\"") || reply.body.contains("value=\"deny\"")
}

#[tokio::test]
async fn a_person_who_follows_the_address_logs_in_sees_what_is_asked_and_approves() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let path = format!("/approvals/{approval}");
    let mut browser = Browser::new(&house);
    let first = browser.get(&path).await;
    let login = format!("/login?next={path}");
    assert_eq!((first.status.as_u16(), first.header("location")), (303, Some(login.as_str())));
    let form = browser.get(&login).await;
    assert_eq!(form.status, 200);
    assert!(form.body.contains(&format!("name=\"next\" value=\"{path}\"")), "{}", form.body);
    let inside = browser.log_in(&house.olga, &path).await;
    assert_eq!((inside.status.as_u16(), inside.header("location")), (303, Some(path.as_str())));

    let page = browser.get(&path).await;
    let object = house.get(&house.olga, "/v1/approvals").await.json()["approvals"][0].clone();
    let detail = house.get(&house.olga, &format!("/v1/runs/{run}")).await.json();
    let context = &object["context"];
    for shown in [
        "CREATE_DIRECTORY",
        "/sandbox/d",
        "alice",
        "it changes what is there",
        "Waits for a decision",
        approval.as_str(),
        run.as_str(),
        context["call_digest"].as_str().unwrap(),
        context["needs_approval"]["policy_hash"].as_str().unwrap(),
        context["needs_approval"]["meta"]["policies"][0].as_str().unwrap(),
        context["expires_at"].as_str().unwrap(),
        detail["run"]["session_id"].as_str().unwrap(),
    ] {
        assert!(page.body.contains(shown), "{shown} is not in\n{}", page.body);
    }
    // A day, unless some of it is over.
    let left = ["1 d 0 h left", "23 h 59 min left"];
    assert!(left.iter().any(|left| page.body.contains(left)), "{}", page.body);
    assert!(page.status == 200 && has_buttons(&page));
    assert_eq!(object["url"], format!("http://127.0.0.1:7420{path}"));

    let decided = browser.decide(&approval, "approve", " so\r\nbe it \r\n").await;
    assert_eq!((decided.status.as_u16(), decided.header("location")), (303, Some(path.as_str())));
    let detail = house.until(&run, "ok").await;
    let page = browser.get(&path).await;
    for shown in ["Approved by <b>olga</b>", "It was executed, and it succeeded."] {
        assert!(page.body.contains(shown), "{shown} is not in\n{}", page.body);
    }
    assert!(!has_buttons(&page));
    let resolution = &detail["approval"]["resolution"];
    assert_eq!(
        (&resolution["approver_id"], &resolution["note"]),
        (&json!("olga"), &json!("so\nbe it"))
    );
    assert_eq!(house.dispatched(), 1);
}

#[tokio::test]
async fn a_person_who_denies_sees_that_it_was_never_executed() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let browser = Browser::of(&house, &house.olga).await;
    assert_eq!(browser.decide(&approval, "deny", "").await.status, 303);
    let page = browser.get(&format!("/approvals/{approval}")).await;
    for shown in ["Denied by <b>olga</b>", "It was never executed."] {
        assert!(page.body.contains(shown), "{shown} is not in\n{}", page.body);
    }
    assert_eq!(house.until(&run, "denied").await["approval"]["resolution"]["note"], Value::Null);
    assert_eq!(house.dispatched(), 0);
}

#[tokio::test]
async fn a_call_that_takes_long_is_shown_as_under_way() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let browser = Browser::of(&house, &house.olga).await;
    let leave = house.executor.hold_back().await;
    assert_eq!(browser.decide(&approval, "approve", "").await.status, 303);
    let page = browser.get(&format!("/approvals/{approval}")).await;
    assert!(page.body.contains("The call is under way.") && page.body.contains("Look again"));
    drop(leave);
    house.until(&run, "ok").await;
}

#[tokio::test]
async fn whoever_comes_second_changes_nothing_and_is_told_so() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let (olga, otto) =
        (Browser::of(&house, &house.olga).await, Browser::of(&house, &house.otto).await);
    assert_eq!(olga.decide(&approval, "approve", "first").await.status, 303);
    for (browser, word) in [(&olga, "approve"), (&olga, "deny"), (&otto, "deny")] {
        let reply = browser.decide(&approval, word, "second").await;
        assert_eq!(reply.status, 409, "{word}");
        assert!(reply.body.contains("Your answer changed nothing"), "{}", reply.body);
        assert!(reply.body.contains("Approved by <b>olga</b>") && !has_buttons(&reply));
    }
    let detail = house.until(&run, "ok").await;
    assert_eq!(detail["approval"]["resolution"]["note"], "first");
    assert_eq!(house.dispatched(), 1);
}

#[tokio::test]
async fn the_principal_that_asked_sees_why_somebody_else_has_to_decide() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.olga, "d").await;
    let (olga, otto) =
        (Browser::of(&house, &house.olga).await, Browser::of(&house, &house.otto).await);
    let page = olga.get(&format!("/approvals/{approval}")).await;
    assert!(page.body.contains("You asked for this yourself") && !has_buttons(&page));
    let reply = olga.decide(&approval, "approve", "").await;
    assert_eq!(reply.status, 403);
    assert!(reply.body.contains("another operator has to decide"), "{}", reply.body);
    assert_eq!(house.dispatched(), 0);
    assert_eq!(otto.decide(&approval, "approve", "").await.status, 303);
    house.until(&run, "ok").await;
}

#[tokio::test]
async fn an_auditor_sees_everything_and_decides_nothing() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let anna = Browser::of(&house, &house.anna).await;
    let page = anna.get(&format!("/approvals/{approval}")).await;
    assert!(page.status == 200 && page.body.contains("/sandbox/d") && !has_buttons(&page));
    for word in ["approve", "deny"] {
        let reply = anna.decide(&approval, word, "").await;
        assert_eq!(reply.status, 403);
        assert!(reply.body.contains("auditors look, and operators decide"), "{}", reply.body);
    }
    house.until(&run, "approval_required").await;
}

#[tokio::test]
async fn what_ran_out_of_time_cannot_be_decided_although_nobody_kept_the_time() {
    let limits = Limits { approval_ttl_ms: 1, ..Limits::default() };
    let house = House::with(ServeConfig::default(), limits).await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let browser = Browser::of(&house, &house.olga).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let page = browser.get(&format!("/approvals/{approval}")).await;
    assert!(page.body.contains("Expired") && !has_buttons(&page), "{}", page.body);
    let reply = browser.decide(&approval, "approve", "").await;
    assert_eq!(reply.status, 409);
    assert!(reply.body.contains("Expired: nobody decided in time"), "{}", reply.body);
    assert_eq!(house.until(&run, "denied").await["approval"]["status"], "expired");
    assert_eq!(house.dispatched(), 0);
}

#[tokio::test]
async fn an_approval_that_is_not_there_is_a_page_that_says_so() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.olga).await;
    for id in [fresh_id(), "x".into(), "%3Cscript%3E".into(), "%00".into(), "%ff".into()] {
        let reply = browser.get(&format!("/approvals/{id}")).await;
        assert_eq!(reply.status, 404, "{id}");
        assert!(reply.body.contains("No approval has this id."), "{}", reply.body);
        assert_eq!(browser.decide(&id, "approve", "").await.status, 404, "{id}");
        assert_eq!(Browser::new(&house).get(&format!("/approvals/{id}")).await.status, 303);
    }
}

fn is_html(reply: &Reply) -> bool {
    reply.header("content-type") == Some("text/html; charset=utf-8")
}

#[tokio::test]
async fn what_agents_and_people_write_is_never_markup() {
    let house = House::new().await;
    let hostile = "<script>alert(1)<\"'&x>";
    let (approval, run) = house.ask(&house.alice, hostile).await;
    let browser = Browser::of(&house, &house.olga).await;
    let path = format!("/approvals/{approval}");
    let open = browser.get(&path).await;
    assert!(open.body.contains("&#60;script&#62;alert(1)"), "{}", open.body);
    browser.decide(&approval, "approve", "\"><img src=x onerror=alert(1)>\u{202e}").await;
    house.until(&run, "ok").await;
    let decided = browser.get(&path).await;
    assert!(decided.body.contains("&#60;img src=x"), "{}", decided.body);
    for page in [open.body, decided.body] {
        for markup in ["<script>", "<img", "\u{202e}"] {
            assert!(!page.contains(markup), "{page}");
        }
    }
}

#[tokio::test]
async fn every_answer_of_a_page_tells_the_browser_to_run_only_our_script_and_keep_nothing() {
    let house = House::new().await;
    let (approval, _) = house.ask(&house.alice, "d").await;
    let (inside, outside) = (Browser::of(&house, &house.olga).await, Browser::new(&house));
    let page = format!("/approvals/{approval}");
    let mut replies = vec![
        inside.get(&page).await,
        outside.get(&page).await,
        outside.get("/login").await,
        outside.get("/style.css").await,
        outside.post("/login", &[("token", "x")]).await,
        outside.post(&page, &[]).await,
        outside.post("/logout", &[]).await,
        inside.post(&page, &[]).await,
    ];
    for method in ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"] {
        for path in [page.as_str(), "/login", "/logout", "/style.css"] {
            let reply = house.send(inside.request(method, path, String::new())).await;
            assert_eq!((reply.status.as_u16(), is_html(&reply)), (405, true), "{method} {path}");
            let allowed = match path {
                "/logout" => "POST",
                "/style.css" => "GET",
                _ => "GET, POST",
            };
            assert_eq!(reply.header("allow"), Some(allowed), "{path}");
            replies.push(reply);
        }
    }
    for reply in replies {
        let policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
        for (name, value) in [
            ("content-security-policy", policy),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{reply:?}");
        }
    }
    let head = house.send(inside.request("HEAD", &page, String::new())).await;
    assert_eq!((head.status.as_u16(), head.body.as_str(), is_html(&head)), (200, "", true));
    let outside = house.send(outside.request("HEAD", &page, String::new())).await;
    assert_eq!(outside.status, 303);
}

#[tokio::test]
async fn no_page_has_a_script_a_style_or_an_address_of_its_own() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let browser = Browser::of(&house, &house.olga).await;
    let outside = Browser::new(&house);
    let mut pages = vec![outside.get("/login").await, browser.get("/approvals/x").await];
    let (approval, run) = (format!("/approvals/{approval}"), format!("/runs/{run}"));
    let paths = ["/", "/runs", "/sessions", "/tools", "/policy", "/health", &approval, &run];
    for path in paths {
        let page = browser.get(path).await;
        assert_eq!((page.status.as_u16(), is_html(&page)), (200, true), "{path}");
        assert_eq!(page.body.matches("<script").count(), 1, "{path}");
        assert!(page.body.contains("<script src=\"/console.js\" defer></script>"), "{path}");
        pages.push(page);
    }
    for page in pages {
        for word in ["<style", "style=", " on", "javascript:", "http://", "https://"] {
            let mut tags = page.body.split('<').skip(1).map(|rest| rest.split('>').next().unwrap());
            let found = tags.find(|tag| format!("<{tag}").contains(word));
            assert_eq!(found, None, "{word}");
        }
    }
    let style = outside.get("/style.css").await;
    assert_eq!(style.header("content-type"), Some("text/css; charset=utf-8"));
    assert!(style.body.contains("prefers-color-scheme: dark") && !style.body.contains("url("));
    let script = outside.get("/console.js").await;
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert!(!script.body.contains("innerHTML =") && !script.body.contains("eval("));
}
