use super::*;

async fn lines(bytes: &[u8], bytes_max: usize) -> Vec<String> {
    let mut lines = Lines { reader: BufReader::with_capacity(3, bytes), bytes_max };
    let mut found = Vec::new();
    while let Some(line) = lines.next().await.unwrap() {
        found.push(match line {
            Line::Whole(line) => String::from_utf8(line).unwrap(),
            Line::TooLong { beginning, end } => {
                format!("{}…{}", String::from_utf8_lossy(&beginning), String::from_utf8_lossy(&end))
            }
        });
    }
    found
}

#[tokio::test]
async fn a_line_may_be_as_long_as_the_limit_and_not_longer() {
    assert_eq!(lines(b"abcd\nabcde\nabc\n", 4).await, ["abcd", "abcde…abcde", "abc"]);
}

#[tokio::test]
async fn a_line_may_end_as_on_windows_and_must_end() {
    assert_eq!(lines(b"a\r\n\nb", 9).await, ["a", ""]);
}

#[tokio::test]
async fn of_a_line_that_is_too_long_both_ends_are_kept() {
    let long = format!("{}{}\nnext\n", "a".repeat(10_000), "b".repeat(10_000));
    let kept = format!("{}…{}", "a".repeat(4096), "b".repeat(128));
    assert_eq!(lines(long.as_bytes(), 8000).await, [kept, "next".to_owned()]);
}
