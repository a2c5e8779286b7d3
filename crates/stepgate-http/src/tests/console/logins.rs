//! Who can log in, for how long, and what a login is valid for.

use super::*;
use crate::routes::{self, Access};

#[tokio::test]
async fn a_login_is_good_for_the_pages_and_for_nothing_else() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.olga).await;
    for route in routes::all(&mounted()).iter().filter(|route| route.access != Access::Public) {
        let path = route.path.replace("{id}", &fresh_id());
        let reply = house.send(browser.request(route.method, &path, String::new())).await;
        assert_eq!(reply.status, 401, "{} {path}", route.method);
    }
    // With a cookie and a token, only the token counts.
    let (approval, _) = house.ask(&house.alice, "d").await;
    let path = format!("/v1/approvals/{approval}/approve");
    let mut request = browser.request("POST", &path, String::new());
    let token = format!("Bearer {}", house.alice).parse().unwrap();
    request.headers_mut().insert("authorization", token);
    assert_eq!(house.send(request).await.status, 403);
    let document = house.get(&house.olga, "/openapi.json").await.json();
    assert!(document["paths"].get("/login").is_none() && document["paths"]["/v1/runs"].is_object());
}

#[tokio::test]
async fn a_token_or_a_local_connection_is_no_login() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let path = format!("/approvals/{approval}");
    let fields = encoded(&[("csrf", ""), ("decision", "approve")]);
    for (method, body, expected) in [("GET", "", 303), ("POST", fields.as_str(), 401)] {
        let mut with_token = house.request(method, &path, &house.olga, body.to_owned());
        with_token.headers_mut().insert("content-type", FORM.parse().unwrap());
        assert_eq!(house.send(with_token).await.status, expected, "{method}");
        let mut local = house.request(method, &path, "", body.to_owned());
        local.extensions_mut().insert(Peer::Local(Process::this().unwrap()));
        local.headers_mut().insert("stepgate-local", "operator".parse().unwrap());
        local.headers_mut().insert("content-type", FORM.parse().unwrap());
        assert_eq!(house.send(local).await.status, expected, "{method}");
    }
    house.until(&run, "approval_required").await;
}

#[tokio::test]
async fn an_agent_s_token_and_a_wrong_one_do_not_log_in_and_are_never_repeated() {
    let house = House::new().await;
    let stranger = house.olga.replace("sg_", "sg-");
    let doubled = format!("{0}{0}", house.olga);
    let rows = [
        (house.alice.as_str(), 403, "belongs to an agent"),
        (house.bob.as_str(), 403, "belongs to an agent"),
        (stranger.as_str(), 401, "is not known"),
        (doubled.as_str(), 401, "is not known"),
        ("", 401, "is not known"),
    ];
    for (token, status, words) in rows {
        let mut browser = Browser::new(&house);
        let reply = browser.log_in(token, "").await;
        assert_eq!((reply.status.as_u16(), browser.cookie), (status, None), "{token}");
        assert!(reply.body.contains(words), "{}", reply.body);
        assert!(token.is_empty() || !reply.body.contains(token), "{}", reply.body);
    }
    // The error repeats no token, even if it comes as the name of a field.
    let reply = Browser::new(&house).post("/login", &[(house.alice.as_str(), "x")]).await;
    assert!(reply.status == 400 && !reply.body.contains(&house.alice), "{}", reply.body);
    // A token is often pasted with a line break.
    Browser::of(&house, &format!(" {}\n", house.olga)).await;
}

#[tokio::test]
async fn failed_logins_are_failed_authentications() {
    let limits = ServeConfig { failed_auth_per_minute_max: 3, ..ServeConfig::default() };
    let house = House::with(limits, Limits::default()).await;
    for (token, expected) in
        [("x", 401), (house.alice.as_str(), 403), ("y", 401), ("z", 429), (&house.bob, 429)]
    {
        let reply = Browser::new(&house).log_in(token, "").await;
        assert_eq!((reply.status.as_u16(), is_html(&reply)), (expected, true), "{token}");
        assert_eq!(reply.header("retry-after").is_some(), expected == 429);
    }
    assert_eq!(house.get("sg_wrong", "/v1/runs").await.status, 429);
    Browser::of(&house, &house.olga).await;
}

#[tokio::test]
async fn a_login_ends_at_once_with_its_token() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let path = format!("/approvals/{approval}");
    let (olga, otto) =
        (Browser::of(&house, &house.olga).await, Browser::of(&house, &house.otto).await);
    let csrf = otto.csrf().await;
    let tokens = house.get(&house.olga, "/v1/tokens").await.json();
    let tokens = tokens["tokens"].as_array().unwrap().clone();
    let id = tokens.iter().find(|token| token["principal_id"] == "otto").unwrap();
    let revoke = format!("/v1/tokens/{}", id["token_id"].as_str().unwrap());
    let revoke = house.request("DELETE", &revoke, &house.olga, String::new());
    assert_eq!(house.send(revoke).await.status, 204);
    let reply = otto.post(&path, &[("csrf", &csrf), ("decision", "approve")]).await;
    assert_eq!(reply.status, 401);
    assert_eq!(otto.get(&path).await.status, 303);
    assert_eq!(Browser::new(&house).log_in(&house.otto, "").await.status, 401);
    house.until(&run, "approval_required").await;
    assert_eq!(olga.get(&path).await.status, 200);
}

#[tokio::test]
async fn a_login_that_is_over_leads_to_the_login() {
    let moment = Duration::from_millis(1);
    for limits in [
        ServeConfig { login_idle_max: moment, ..ServeConfig::default() },
        ServeConfig { login_life_max: moment, ..ServeConfig::default() },
    ] {
        let house = House::with(limits, Limits::default()).await;
        let browser = Browser::of(&house, &house.olga).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(browser.get(&format!("/approvals/{}", fresh_id())).await.status, 303);
    }
}

#[tokio::test]
async fn whoever_logs_out_is_out_and_whoever_logs_in_again_has_another_login() {
    let house = House::new().await;
    let path = format!("/approvals/{}", fresh_id());
    let mut browser = Browser::of(&house, &house.olga).await;
    let before = browser.cookie.clone();
    browser.log_in(&house.otto, "").await;
    assert_ne!(browser.cookie, before);
    let old = Browser { house: &house, cookie: before };
    assert_eq!(old.get(&path).await.status, 303);
    let csrf = browser.csrf().await;
    let out = browser.post("/logout", &[("csrf", &csrf)]).await;
    assert_eq!((out.status.as_u16(), out.header("location")), (303, Some("/login")));
    let gone = "stepgate-login=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0";
    assert_eq!(out.header("set-cookie"), Some(gone));
    assert_eq!(browser.get(&path).await.status, 303);
    // Logging out twice is not an error.
    assert_eq!(browser.post("/logout", &[("csrf", &csrf)]).await.status, 303);
}

#[tokio::test]
async fn a_login_leads_back_to_pages_of_ours_alone() {
    let house = House::new().await;
    let page = format!("/approvals/{}", fresh_id());
    let inside = Browser::of(&house, &house.olga).await;
    let rows = [
        (page.as_str(), page.as_str()),
        ("//evil.test", "/"),
        ("/\\evil.test", "/"),
        ("https://evil.test/approvals/1", "/"),
        ("javascript:alert(1)", "/"),
        ("/approvals/1\r\nset-cookie: a=b", "/"),
        ("/\t/evil.test", "/"),
        ("/v1/runs", "/"),
        ("/login", "/"),
        ("\"><script>", "/"),
    ];
    for (next, expected) in rows {
        let reply = Browser::new(&house).log_in(&house.olga, next).await;
        assert_eq!(reply.header("location"), Some(expected), "{next:?}");
        let asked = format!("/login?{}", encoded(&[("next", next)]));
        let form = Browser::new(&house).get(&asked).await;
        let kept = if expected == "/" { "" } else { next };
        let field = format!("name=\"next\" value=\"{kept}\"");
        assert!(form.status == 200 && form.body.contains(&field), "{}", form.body);
        let again = inside.get(&asked).await;
        assert_eq!(again.header("location"), Some(expected));
    }
    assert_eq!(Browser::new(&house).get("/login?next=%zz&next=1&x").await.status, 200);
}

#[tokio::test]
async fn a_link_on_another_site_brings_no_cookie_and_the_login_says_what_to_do() {
    let house = House::new().await;
    let path = format!("/login?next=/approvals/{}", fresh_id());
    for (site, is_told) in [("cross-site", true), ("same-origin", false), ("none", false)] {
        let mut request = Browser::new(&house).request("GET", &path, String::new());
        request.headers_mut().insert("sec-fetch-site", site.parse().unwrap());
        let reply = house.send(request).await;
        assert_eq!(reply.body.contains("open the page</a>"), is_told, "{site}");
    }
}

#[tokio::test]
async fn one_login_too_many_ends_the_oldest_of_the_same_token() {
    let house = House::new().await;
    let path = format!("/approvals/{}", fresh_id());
    let otto = Browser::of(&house, &house.otto).await;
    let first = Browser::of(&house, &house.olga).await;
    for _ in 1..16 {
        Browser::of(&house, &house.olga).await;
        assert_eq!(otto.get(&path).await.status, 404);
    }
    assert_eq!(first.get(&path).await.status, 404);
    for _ in 0..16 {
        Browser::of(&house, &house.olga).await;
    }
    assert_eq!(first.get(&path).await.status, 303);
    assert_eq!(otto.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_cookie_is_kept_from_scripts_and_other_sites_and_over_tls_from_everything_else() {
    let house = House::new().await;
    let service = Arc::clone(&house.app.service);
    let https = PublicUrl::parse("https://gate.example.com").unwrap();
    let https = App::new(service, ServeConfig::default(), https, AccessLog::Silent, Vec::new());
    let rows = [
        (&house.app, "stepgate-login=", "; Path=/; HttpOnly; SameSite=Strict"),
        (&https, "__Host-stepgate-login=", "; Path=/; HttpOnly; SameSite=Strict; Secure"),
    ];
    for (app, name, attributes) in rows {
        let body = encoded(&[("token", &house.olga)]);
        let request = Browser::new(&house).request("POST", "/login", body);
        let response = router(app).oneshot(request).await.unwrap();
        let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
        let value = cookie.strip_prefix(name).unwrap().strip_suffix(attributes).unwrap();
        assert!(value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let pair = format!("{name}{value}");
        let mut request =
            house.request("GET", &format!("/approvals/{}", fresh_id()), "", String::new());
        request.headers_mut().insert("cookie", pair.parse().unwrap());
        assert_eq!(router(app).oneshot(request).await.unwrap().status(), 404);
    }
    let id = stepgate_core::ids::ApprovalId::new(uuid::Uuid::now_v7());
    assert_eq!(https.public_url.approval(id), format!("https://gate.example.com/approvals/{id}"));
}
