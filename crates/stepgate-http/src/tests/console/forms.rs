//! Forms that our pages did not make, or made for another login.

use super::*;

#[tokio::test]
async fn a_form_without_the_secret_of_its_own_login_decides_nothing() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let path = format!("/approvals/{approval}");
    let olga = Browser::of(&house, &house.olga).await;
    let other_login = Browser::of(&house, &house.olga).await.csrf().await;
    let other_person = Browser::of(&house, &house.otto).await.csrf().await;
    let own = olga.csrf().await;
    let cut = own[1..].to_owned();
    let longer = format!("{own}0");
    let upper = own.to_uppercase().replace(char::is_numeric, "A");
    let cookie = olga.cookie.clone().unwrap().split('=').nth(1).unwrap().to_owned();
    for wrong in ["", "x", &other_login, &other_person, &cut, &longer, &upper, &cookie] {
        let reply = olga.post(&path, &[("csrf", wrong), ("decision", "approve")]).await;
        assert_eq!(reply.status, 403, "{wrong}");
        assert!(reply.body.contains("nothing was done"), "{}", reply.body);
        let out = olga.post("/logout", &[("csrf", wrong)]).await;
        assert_eq!(out.status, 403, "{wrong}");
    }
    let rows: [&[(&str, &str)]; 6] = [
        &[],
        &[("decision", "approve")],
        &[("csrf", &own)],
        &[("csrf", &own), ("decision", "APPROVE")],
        &[("csrf", &own), ("decision", "approve"), ("decision", "deny")],
        &[("csrf", &own), ("decision", "approve"), ("surprise", "x")],
    ];
    for fields in rows {
        let reply = olga.post(&path, fields).await;
        assert_eq!((reply.status.as_u16(), is_html(&reply)), (400, true), "{fields:?}");
    }
    house.until(&run, "approval_required").await;
    assert_eq!(house.dispatched(), 0);
    assert_eq!(olga.decide(&approval, "approve", "").await.status, 303);
}

#[tokio::test]
async fn a_form_that_another_site_sends_does_nothing() {
    let house = House::new().await;
    let browser = Browser::of(&house, &house.olga).await;
    let csrf = browser.csrf().await;
    let rows: [(&[(&'static str, &str)], bool); 20] = [
        (&[], true),
        (&[("sec-fetch-site", "same-origin")], true),
        (&[("sec-fetch-site", "none")], true),
        (&[("origin", "http://127.0.0.1:7420")], true),
        (&[("origin", "http://gate.test:9"), ("host", "gate.test:9")], true),
        (&[("origin", "https://Gate.test"), ("host", "gate.test")], true),
        (&[("origin", "null"), ("sec-fetch-site", "same-origin")], true),
        (&[("origin", "null")], false),
        (&[("origin", "")], false),
        (&[("origin", "http://evil.test")], false),
        (&[("origin", "http://evil.test"), ("sec-fetch-site", "same-origin")], false),
        (&[("origin", "http://127.0.0.1:7420.evil.test")], false),
        (&[("origin", "http://127.0.0.1:9999")], false),
        (&[("origin", "http://127.0.0.1")], false),
        (&[("origin", "https://127.0.0.1:7420")], false),
        (&[("origin", "http://me@gate.test"), ("host", "gate.test")], false),
        (&[("sec-fetch-site", "cross-site")], false),
        (&[("sec-fetch-site", "same-site")], false),
        (&[("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1:7420")], false),
        (&[("origin", "http://127.0.0.1:7420"), ("origin", "http://evil.test")], false),
    ];
    for (headers, is_taken) in rows {
        let (approval, run) = house.ask(&house.alice, &fresh_id()).await;
        let with_headers = |path: &str, fields: &[(&str, &str)]| {
            let mut request = browser.request("POST", path, encoded(fields));
            for (name, value) in headers {
                request.headers_mut().append(*name, value.parse().unwrap());
            }
            request
        };
        let decision = [("csrf", csrf.as_str()), ("decision", "approve")];
        let request = with_headers(&format!("/approvals/{approval}"), &decision);
        let reply = house.send(request).await;
        assert_eq!(reply.status, if is_taken { 303 } else { 403 }, "{headers:?}");
        let status = if is_taken { "ok" } else { "approval_required" };
        house.until(&run, status).await;
        // Another site cannot log a visitor in either.
        let mut request = with_headers("/login", &[("token", &house.otto)]);
        request.headers_mut().remove("cookie");
        let reply = house.send(request).await;
        assert_eq!(reply.header("set-cookie").is_some(), is_taken, "{headers:?}");
    }
}

#[tokio::test]
async fn a_form_has_limits_like_every_body() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let browser = Browser::of(&house, &house.olga).await;
    let path = format!("/approvals/{approval}");
    let csrf = browser.csrf().await;
    for (length, expected) in [(4097, 400), (40_000, 413)] {
        let reply = browser.decide(&approval, "deny", &"x".repeat(length)).await;
        assert_eq!((reply.status.as_u16(), is_html(&reply)), (expected, true), "{length}");
    }
    let fields = encoded(&[("csrf", &csrf), ("decision", "approve")]);
    for kind in [None, Some("application/json"), Some("text/plain"), Some("multipart/form-data")] {
        let mut request = browser.request("POST", &path, fields.clone());
        request.headers_mut().remove("content-type");
        if let Some(kind) = kind {
            request.headers_mut().insert("content-type", kind.parse().unwrap());
        }
        let reply = house.send(request).await;
        assert_eq!((reply.status.as_u16(), is_html(&reply)), (400, true), "{kind:?}");
    }
    house.until(&run, "approval_required").await;
    // A note of the maximum length fits, even with every byte escaped.
    assert_eq!(browser.decide(&approval, "deny", &"\u{fe}".repeat(2048)).await.status, 303);
}

#[tokio::test]
async fn a_form_of_somebody_who_is_not_logged_in_any_more_says_that_nothing_was_done() {
    let house = House::new().await;
    let (approval, run) = house.ask(&house.alice, "d").await;
    let path = format!("/approvals/{approval}");
    let reply = Browser::new(&house).post(&path, &[("csrf", ""), ("decision", "approve")]).await;
    assert_eq!(reply.status, 401);
    let link = format!("href=\"/login?next={path}\"");
    assert!(
        reply.body.contains("nothing was done") && reply.body.contains(&link),
        "{}",
        reply.body
    );
    house.until(&run, "approval_required").await;
}
