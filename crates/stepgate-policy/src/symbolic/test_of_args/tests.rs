use super::*;

#[test]
fn a_condition_on_an_argument_is_read_at_its_first_operator() {
    let rows = [
        ("amount > 100", "amount", Operator::More, "100"),
        ("amount>=100.5", "amount", Operator::AtLeast, "100.5"),
        ("amount<-1", "amount", Operator::Less, "-1"),
        ("amount <= 3", "amount", Operator::AtMost, "3"),
        ("to = a=b", "to", Operator::Equal, "a=b"),
        ("to == >x<", "to", Operator::Equal, ">x<"),
        ("to != ann lee", "to", Operator::NotEqual, "ann lee"),
        ("options.urgent = true", "options.urgent", Operator::Equal, "true"),
        ("to contains a = b", "to", Operator::Contains, "a = b"),
    ];
    for (text, path, operator, value) in rows {
        let test: ArgTest = text.parse().unwrap();
        let found = (test.path.join("."), test.operator, test.value.as_str());
        assert_eq!(found, (path.to_owned(), operator, value), "{text}");
        // What is shown can be read again.
        assert_eq!(test.to_string().parse(), Ok(test), "{text}");
    }
}

#[test]
fn a_bound_on_a_whole_number_is_the_next_whole_number() {
    let rows = [
        ("n > 99.5", 100),
        ("n > 99", 100),
        ("n >= 99.5", 100),
        ("n >= 99", 99),
        ("n < 99.5", 99),
        ("n < 99", 98),
        ("n <= 99.5", 99),
        ("n < -0.5", -1),
        ("n > -0.5", 0),
    ];
    for (text, bound) in rows {
        let test: ArgTest = text.parse().unwrap();
        assert_eq!(test.rounded(test.operator), Some(bound), "{text}");
    }
}
