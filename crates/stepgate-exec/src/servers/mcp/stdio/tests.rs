use super::*;

async fn lines(bytes: &[u8], bytes_max: usize) -> Vec<String> {
    let reader = BufReader::with_capacity(3, bytes);
    let mut lines = Lines { reader, bytes_max, dropped_max: 20_000 };
    let mut found = Vec::new();
    while let Some(line) = lines.next().await.unwrap() {
        found.push(match line {
            ReadLine::Whole(line) => String::from_utf8(line).unwrap(),
            ReadLine::TooLong { beginning, end } => {
                format!("{}…{}", String::from_utf8_lossy(&beginning), String::from_utf8_lossy(&end))
            }
            ReadLine::Endless { bytes } => {
                found.push(format!("endless after {bytes}"));
                return found;
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

#[tokio::test]
async fn a_line_that_does_not_end_is_not_read_for_ever() {
    let line = |bytes: usize| format!("{}\n", "a".repeat(bytes)).into_bytes();
    assert_eq!(lines(&line(20_003), 4).await.len(), 1);
    assert_eq!(lines(&line(20_010), 4).await, ["endless after 20007"]);
}
