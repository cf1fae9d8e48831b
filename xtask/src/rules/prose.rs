//! Rule: a comment names its subject first and says more than the item's name, so that one reading is enough.

use crate::source::{Source, words};
use crate::tidy::{Finding, Tree, finding};

/// Opening words of a documentation comment that hide its subject.
const OPENINGS: &[&str] = &[
    "who",
    concat!("who", "ever"),
    "whose",
    "what",
    "whatever",
    "where",
    "wherever",
    "it",
    "its",
    "of",
];

/// Words that do not name a process, thread or peer, or that have a modern spelling.
const BANNED: &[&str] = &[
    concat!("some", "body"),
    concat!("no", "body"),
    concat!("any", "body"),
    concat!("every", "body"),
    concat!("who", "ever"),
    concat!("hand", "-shake"),
];

/// The length, in words, up to which a documentation comment says no more than the item's name.
const FEW_WORDS: usize = 3;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources
        .iter()
        .flat_map(|source| {
            [
                documentation(source),
                banned(source),
                whole_messages(source),
            ]
        })
        .flatten()
        .collect()
}

/// Finds documentation comments that open without a subject, or say too little.
fn documentation(source: &Source) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut lines = source.raw.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let Some(first) = documented(line) else {
            continue;
        };
        let mut text = first.to_owned();
        while let Some(more) = lines.peek().and_then(|(_, line)| documented(line)) {
            text.push(' ');
            text.push_str(more);
            lines.next();
        }
        let opening = first
            .split(|c: char| !c.is_alphabetic())
            .next()
            .unwrap_or_default()
            .to_lowercase();
        if OPENINGS.contains(&opening.as_str()) {
            let text = format!("a comment opens with `{opening}`: name the subject");
            all.push(finding("prose", &source.path, number + 1, text));
        }
        if text.split_whitespace().count() <= FEW_WORDS {
            let text = format!(
                "`{}` says too little: say what it does, or leave it out",
                text.trim()
            );
            all.push(finding("prose", &source.path, number + 1, text));
        }
    }
    all
}

/// Returns the text of a line that documents an item or a module.
fn documented(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line
        .strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))?;
    // Four slashes do not start a documentation comment.
    (!text.starts_with('/')).then(|| text.trim_start())
}

/// Finds banned words in comments and messages.
fn banned(source: &Source) -> Vec<Finding> {
    let mut all = Vec::new();
    for (number, (raw, code)) in source.raw.lines().zip(source.code.lines()).enumerate() {
        let text = prose(raw, code);
        let hits = BANNED
            .iter()
            .filter(|word| words(&text, word).next().is_some());
        all.extend(hits.map(|word| {
            let text = format!("`{word}`: name the process, thread, peer or person");
            finding("prose", &source.path, number + 1, text)
        }));
    }
    all
}

/// Returns the comments and literals of a line in lower case, without the names of code in backticks.
fn prose(raw: &str, code: &str) -> String {
    let is_code = |at: usize| code.as_bytes().get(at).is_some_and(|byte| *byte != b' ');
    let text: String = raw
        .char_indices()
        .map(|(at, c)| if is_code(at) { ' ' } else { c })
        .collect();
    text.split('`')
        .step_by(2)
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase()
}

/// Finds error variants whose whole message is a `String` that was made elsewhere.
fn whole_messages(source: &Source) -> Vec<Finding> {
    let mut all = Vec::new();
    let lines: Vec<&str> = source.raw.lines().collect();
    for (number, pair) in lines.windows(2).enumerate() {
        if let [message, item] = pair
            && message.trim() == r#"#[error("{0}")]"#
            && item.contains("(String)")
        {
            let text = "an error that is only a `String`: give it a variant with what failed and its source";
            all.push(finding("prose", &source.path, number + 2, text));
        }
    }
    all
}
