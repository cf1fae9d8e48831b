//! Rule: a type has a name of the field, and means one thing in the whole workspace.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{Finding, Tree, finding};

/// Maximum number of modules that define a type of the same name. A reader of three modules still keeps them apart.
const MODULES_MAX: usize = 3;

/// Names that any number of modules may define, with the meaning that all of them share.
const CONVENTIONAL: &[(&str, &str)] = &[
    ("Action", "what a parsed command line asks for"),
    ("Args", "the command line of a program"),
    ("Channel", "one end of a two-way exchange of messages"),
    ("Client", "the client of the module's protocol or program"),
    ("Config", "the settings of the module's machine"),
    ("Connection", "a connection, or its entry in a listing"),
    ("Counters", "the counts of the module"),
    ("Entry", "an item of the module's collection"),
    ("Error", "the error of the module's operation"),
    ("Event", "what the module's machine reports"),
    ("Fixture", "the objects that the tests of a module share"),
    ("Flow", "a flow, or its entry in a listing"),
    ("Frame", "the unit of the module's protocol or link"),
    ("Key", "the key of a map, a file or a keyboard"),
    ("Message", "the message of the module's protocol"),
    ("Options", "the options of the module's command"),
    ("Report", "the report of the module's command"),
    ("Request", "the request of the module's protocol"),
    ("Response", "the response of the module's protocol"),
    ("Server", "the server of the module's protocol or program"),
    (
        "Slot",
        "a position in a table that another value may take later",
    ),
    ("State", "the state of the module's machine"),
    ("Status", "the status that the module's protocol reports"),
    ("Stream", "a stream of the module's protocol"),
    ("Table", "the table that a module prints or parses"),
    ("Tunnel", "a tunnel, or its entry in a listing"),
];

/// Names that are vague, poetic or a participle, so that only their author knows what they stand for.
const BANNED: &[&str] = &[
    "Ask", "Asked", "Board", "Came", "Company", "Crew", "Door", "Duty", "Ended", "Far", "Ground",
    "Io", "Kept", "Known", "Lane", "Left", "Look", "Mark", "News", "Of", "Ours", "Part", "Party",
    "Patience", "Place", "Residue", "Room", "Row", "Said", "Seat", "Seen", "Shown", "Site",
    "Stage", "Stand", "Standing", "Taken", "Told", "Way", "What", "Whole", "Why",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut modules: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in &tree.sources {
        for (number, line) in source.code.lines().enumerate() {
            let Some(name) = defined(line) else {
                continue;
            };
            modules.entry(name).or_default().insert(&source.path);
            if BANNED.contains(&name) {
                let text = format!("`{name}` does not say what the type is: use the field's word");
                all.push(finding("type-name", &source.path, number + 1, text));
            }
        }
    }
    let is_conventional = |name: &str| CONVENTIONAL.iter().any(|(known, _)| *known == name);
    for (name, paths) in modules {
        if paths.len() <= MODULES_MAX || is_conventional(name) {
            continue;
        }
        let count = paths.len();
        all.extend(paths.into_iter().map(|path| {
            let text = format!("{count} modules define a type `{name}`: give each its own name");
            finding("type-name", path, 0, text)
        }));
    }
    all
}

/// Returns the name of the type that a line defines. An indented `type` belongs to a trait or its implementation.
fn defined(line: &str) -> Option<&str> {
    let item = line.trim_start();
    let item = match item.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) if rest.starts_with(' ') => rest,
        _ => item,
    };
    let (keyword, rest) = item.trim_start().split_once(' ')?;
    let is_type = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let mut words = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.next().filter(|name| is_type && !name.is_empty())
}
