use super::{Person, in_time};
use crate::ids::PrincipalId;
use crate::time::Timestamp;

#[test]
fn a_grant_counts_until_the_moment_of_expiry_and_not_in_it() {
    let at = Timestamp::from_millisecond;
    let approver_id = PrincipalId::parse("ops").unwrap();
    let grants = || Person::Approves { approver_id: approver_id.clone(), note: None };
    let refuses = || Person::Denies { approver_id: approver_id.clone(), note: None };
    for (person, now, counts) in [
        (grants(), 999, true),
        (grants(), 1000, false),
        (grants(), 1001, false),
        (refuses(), 1001, true),
    ] {
        let expected = if counts { person.clone() } else { Person::Nobody };
        assert_eq!(in_time(person, at(1000), at(now)), expected, "{now}");
    }
}
