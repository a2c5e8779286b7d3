use super::Destination;

#[test]
fn a_login_leads_to_a_page_of_ours_and_never_out_of_the_house() {
    let id = "01a1de80-c7b6-765d-ab4e-039eb925c5ff";
    let page = format!("/approvals/{id}");
    assert_eq!(Destination::parse(&page).map(|it| it.to_string()), Some(page.clone()));
    assert_eq!(Destination::parse("/").map(|it| it.to_string()), Some("/".to_owned()));
    let long = format!("/approvals/{}", "a".repeat(300));
    let rows = [
        "",
        "//evil",
        "///evil",
        "//evil/approvals/1",
        "/\\evil",
        "\\\\evil",
        "/approvals//evil",
        "http://evil",
        "https://evil/approvals/1",
        "javascript:alert(1)",
        "evil",
        "approvals/1",
        "/approvals",
        "/approvals/",
        "/approvals/1/2",
        "/approvals/..",
        "/approvals/1?a=b",
        "/approvals/1#a",
        "/approvals/%2e%2e",
        "/approvals/a@evil",
        "/approvals/a:b",
        "/approvals/a b",
        "/approvals/1\r\nset-cookie: a=b",
        "/\t/evil",
        "/\n/evil",
        "/approvals/\u{0}",
        "/approvals/\u{202e}",
        "\t/approvals/1",
        "/login",
        "/live",
        "/logout",
        "/v1/runs",
        "/Approvals/1",
        &long,
    ];
    for text in rows {
        assert_eq!(Destination::parse(text), None, "{text:?}");
    }
}
