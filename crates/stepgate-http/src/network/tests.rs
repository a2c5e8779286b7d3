use super::*;

#[test]
fn an_ipv6_site_is_one_client_and_each_ipv4_address_is_one_also_where_it_is_mapped() {
    for (one, other, are_same) in [
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.2", false),
        ("192.0.2.1", "::ffff:192.0.2.1", true),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", false),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", true),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ("::1", "127.0.0.1", false),
    ] {
        let [one, other] = [one, other].map(|text| Network::of(text.parse().unwrap()));
        assert_eq!(one == other, are_same, "{one} {other}");
    }
    assert_eq!(Network::of("2001:db8::7".parse().unwrap()).to_string(), "2001:db8::/64");
}
