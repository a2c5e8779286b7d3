use super::*;

async fn read(input: &[u8]) -> Vec<Option<String>> {
    let mut lines = Lines::new(input);
    let mut read = Vec::new();
    while let Some(next) = lines.next().await.unwrap() {
        read.push(match next {
            Next::Line(line) => Some(String::from_utf8(line).unwrap()),
            Next::TooLong => None,
        });
    }
    read
}

#[tokio::test]
async fn lines_come_one_by_one_and_empty_ones_not_at_all() {
    let expected = ["one", "two", "three"].map(|line| Some(line.to_owned()));
    assert_eq!(read(b"one\r\n\n\r\ntwo\nthree\nunfinished").await, expected);
}

#[tokio::test]
async fn a_line_that_is_too_long_is_told_and_the_next_one_is_read() {
    for (length, is_told) in
        [(LINE_BYTES_MAX - 1, false), (LINE_BYTES_MAX, false), (LINE_BYTES_MAX + 1, true)]
    {
        let mut input = vec![b'x'; length];
        input.extend_from_slice(b"\nnext\n");
        let read = read(&input).await;
        assert_eq!(read.len(), 2, "{length}");
        assert_eq!(read[0].is_none(), is_told, "{length}");
        assert_eq!(read[1].as_deref(), Some("next"));
    }
}
