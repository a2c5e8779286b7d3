use std::fmt::Write;
use std::fs;

use super::*;

/// This command and every one below it, each with the help that it prints.
fn describe(text: &mut String, path: &str, command: &clap::Command) {
    // Help shows what variables are set to: a page must not.
    let own = command.clone().term_width(100).mut_args(|arg| arg.hide_env_values(true));
    let help = own.bin_name(path).render_long_help().to_string();
    writeln!(text, "\n## {path}\n\n```text\n{}\n```", help.trim_end()).unwrap();
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    for below in below.filter(|below| below.get_name() != "help") {
        describe(text, &format!("{path} {}", below.get_name()), below);
    }
}

#[test]
fn the_page_of_the_commands_is_made_from_the_command_line() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
    let mut text =
        "# Commands\n\nEvery command with the help that it prints, made from the program's own \
                    command line. `stepgate man DIR` writes the\nsame as manual pages. The options of `stepgate` itself go with every command.\n"
            .to_owned();
    // Not built: the options that every command takes are shown once, at the top.
    describe(&mut text, "stepgate", &Cli::command());
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let text = lines.join("\n") + "\n";
    if std::env::var_os("STEPGATE_BLESS").is_some() {
        fs::write(path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), text, "run again with STEPGATE_BLESS=1");
}
