//! The pages over TLS.

use rustls::version::TLS13;

use super::{ask, connect, place};
use crate::http_client::{Gateway, request};
use crate::tls::authority::Authority;

#[test]
fn the_cookie_of_a_login_is_kept_to_tls() {
    let authority = Authority::new();
    let place = place(&authority, "");
    let gateway = Gateway::start(&place);
    let body = format!("token={}", gateway.operator);
    let own = format!("https://{}", gateway.address);
    for (origin, status) in [(own.as_str(), "303"), ("https://evil.example.com", "403")] {
        let headers = [("origin", origin), ("content-type", "application/x-www-form-urlencoded")];
        let request = request("POST", "/login", "", &headers, &body);
        let mut connection = connect(gateway.address, authority.client(&[&TLS13])).unwrap();
        let answer = ask(&mut connection, &request).unwrap();
        assert_eq!(answer.split(' ').nth(1), Some(status), "{origin}");
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let is_secure = cookie.is_some_and(|it| {
            it.starts_with("__Host-stepgate-login=") && it.trim_end().ends_with("; Secure")
        });
        assert_eq!(is_secure, status == "303", "{cookie:?}");
    }
}
