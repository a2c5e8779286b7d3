use bytes::Bytes;

use super::is_answer;

#[test]
fn the_piece_with_the_answer_is_told_from_words_on_the_way() {
    let rows = [
        ("id: 0/0\nretry: 3000\ndata:\n\n", false),
        (": keep-alive\n\n", false),
        (
            "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n",
            false,
        ),
        ("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"elicitation/create\"}\n\n", false),
        ("id: 1/0\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"method\":1}}\n\n", true),
        ("data:{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"error\":{\"code\":-32602}}\n\n", true),
    ];
    for (piece, expected) in rows {
        assert_eq!(is_answer(&Bytes::from_static(piece.as_bytes())), expected, "{piece}");
    }
}
