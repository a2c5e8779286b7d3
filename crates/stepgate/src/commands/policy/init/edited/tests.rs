use super::*;

fn addition(tool: &ToolName) -> Addition<'_> {
    let keys = vec![("mode", "read_only".into()), ("reads", vec!["untrusted"].into())];
    Addition { tool, keys, is_guess: false }
}

fn tool(name: &str) -> ToolName {
    ToolName::parse(name).unwrap()
}

#[test]
fn what_stands_there_stays_byte_for_byte() {
    let keys = "mode = \"read_only\"\nreads = [\"untrusted\"]\n";
    let rows = [
        // A new table at the end, with or without a line break before it.
        ("[servers.a]\n", format!("[servers.a]\n\n[servers.a.tools.b]\n{keys}")),
        ("[servers.a]", format!("[servers.a]\n\n[servers.a.tools.b]\n{keys}")),
        ("", format!("\n[servers.a.tools.b]\n{keys}")),
        // The table that is there, however its header is spelled.
        (
            "[servers.a.tools.b]\nsends = []\n[servers.c]\n",
            format!("[servers.a.tools.b]\n{keys}sends = []\n[servers.c]\n"),
        ),
        (
            " [ servers . 'a' . tools . \"b\" ] # ours\r\nsends = []",
            format!(" [ servers . 'a' . tools . \"b\" ] # ours\r\n{keys}sends = []"),
        ),
        // Its keys may come before it.
        (
            "[servers.a.tools]\nc = {}\n# end\n",
            format!("[servers.a.tools]\nc = {{}}\n# end\n\n[servers.a.tools.b]\n{keys}"),
        ),
    ];
    let tool = tool("a.b");
    for (text, expected) in rows {
        assert_eq!(edited(text, &[addition(&tool)]).unwrap(), expected, "{text}");
    }
}

#[test]
fn a_file_that_cannot_be_added_to_is_refused() {
    let rows = [
        "servers = { a = { command = \"x\" } }\n",
        "[servers]\na = { command = \"x\" }\n",
        "[servers.a]\ntools = { c = {} }\n",
        "[servers.a.tools]\nb = { sends = [] }\n",
        // Something that looks like the header, in a text.
        "x = '''\n[servers.a.tools.b]\n'''\n",
        // What is there is not overwritten.
        "[servers.a.tools.b]\nmode = \"off\"\n",
        "[servers.a.tools.b]\nreads = []\n",
        "[[servers]]\n",
        "not toml",
    ];
    let tool = tool("a.b");
    for text in rows {
        assert!(edited(text, &[addition(&tool)]).is_err(), "{text}");
    }
}

#[test]
fn names_are_quoted_where_they_must_be() {
    for name in ["a.google.get", "a.x/y", "a.-"] {
        let tool = tool(name);
        let text = edited("", &[addition(&tool)]).unwrap();
        let parsed: toml::Table = toml::from_str(&text).unwrap();
        assert!(parsed["servers"]["a"]["tools"][tool.tool()]["mode"].is_str(), "{text}");
    }
}
