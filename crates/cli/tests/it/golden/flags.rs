//! Every flag of every command, including hidden ones.

use std::fmt::Write as _;

use clap::builder::PossibleValue;

use super::golden;
use crate::help::commands;

#[test]
fn golden_flags() {
    let mut text = String::new();
    for (name, command) in commands() {
        for arg in command.get_arguments() {
            let mut line = name.clone();
            for short in arg.get_short_and_visible_aliases().into_iter().flatten() {
                write!(line, " -{short}").expect("a line");
            }
            match arg.get_long() {
                Some(long) => write!(line, " --{long}"),
                None => write!(line, " <{}>", arg.get_id()),
            }
            .expect("a line");
            let action = format!("{:?}", arg.get_action());
            let values = arg.get_num_args().map(|count| format!(" {count}"));
            let separate = if arg.is_require_equals_set() {
                " ="
            } else {
                ""
            };
            write!(line, " {action}{}{separate}", values.unwrap_or_default()).expect("a line");
            for (what, holds) in [
                ("required", arg.is_required_set()),
                ("hidden", arg.is_hide_set()),
                ("last", arg.is_last_set()),
            ] {
                if holds {
                    write!(line, " {what}").expect("a line");
                }
            }
            let defaults: Vec<_> = arg.get_default_values().iter().collect();
            if !defaults.is_empty() {
                write!(line, " default {defaults:?}").expect("a line");
            }
            let choices = arg.get_possible_values();
            if !choices.is_empty() {
                let choices: Vec<_> = choices.iter().map(PossibleValue::get_name).collect();
                write!(line, " one of {}", choices.join(" ")).expect("a line");
            }
            text.push_str(&line);
            text.push('\n');
        }
    }
    golden("flags", &text);
}
