//! Rules on Rust source: purity, `unsafe`, printing, sizes, names, tests.

use std::collections::BTreeSet;

use crate::manifests::{Kind, kind};
use crate::source::{Source, functions, line_of, words};
use crate::tidy::{Finding, Tree, finding};

const FILE_LINES_MAX: usize = 1000;
const FILE_LINES_WARN: usize = 600;
const FUNCTION_LINES_MAX: usize = 120;

/// What code that is a function of its input cannot mention, with the reason.
const IMPURE: &[(&str, &str)] = &[
    ("async tokio", "it is called, it does not wait"),
    ("TcpStream TcpListener UdpSocket", "it has no sockets"),
    ("UnixStream UnixListener UnixDatagram", "it has no sockets"),
    ("fs File OpenOptions", "it has no files"),
    (
        "thread::spawn thread::scope thread::Builder",
        "it has no threads",
    ),
    (
        "Instant::now SystemTime::now .elapsed()",
        "time is an argument",
    ),
    (
        "getrandom OsRng thread_rng rand::rng",
        "randomness has a seed",
    ),
    (
        "rand::fill SystemRandom RandomState",
        "randomness has a seed",
    ),
];

const HASHED: &str = "HashMap HashSet FxHashMap FxHashSet";

/// Methods whose result has the order of a hash table. Loops over the table itself are clippy's
/// (`iter_over_hash_type`).
const UNORDERED: &str =
    "iter iter_mut keys values values_mut into_iter into_keys into_values drain retain";

const PRINTS: &str = "println! eprintln! print! eprint! dbg! process::exit process::abort";

const VAGUE: &[&str] = &[
    "utils", "util", "common", "helpers", "helper", "manager", "misc",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let test_paths: Vec<String> = tree.sources.iter().flat_map(Source::test_paths).collect();
    let is_test = |source: &Source| {
        let path = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
        let below = |test: &String| path.strip_prefix(test.as_str()).is_some_and(starts_a_part);
        source.path.contains("/tests/") || test_paths.iter().any(below)
    };
    let mut all = Vec::new();
    for source in &tree.sources {
        let package = source.package();
        let parts = source.path.trim_end_matches(".rs").split('/');
        let vague = parts.filter(|part| VAGUE.contains(part));
        let named = |part| {
            finding(
                "name",
                &source.path,
                0,
                format!("`{part}` names no concept"),
            )
        };
        all.extend(vague.map(named));
        all.extend(unsafe_code(source));
        all.extend(lengths(source, is_test(source)));
        let mut refuse =
            |rule, text, needles, why| all.extend(refused(rule, source, text, needles, why));
        refuse(
            "wait",
            &source.code,
            "thread::sleep",
            "wait for an event, with a deadline",
        );
        refuse(
            "wait",
            &source.code,
            "#[ignore",
            "a test that does not run is none",
        );
        let may_print =
            matches!(package, "cli" | "xtask") || source.path.starts_with("crates/e2e/src/bin/");
        if is_test(source) {
            continue;
        }
        if !may_print {
            refuse(
                "print",
                &source.product,
                PRINTS,
                "only the programs print or exit",
            );
        }
        if matches!(kind(package), Some(Kind::Pure | Kind::SansIo)) {
            for (needles, why) in IMPURE {
                refuse("pure", &source.product, needles, why);
            }
            all.extend(hash_order(tree, source));
        }
    }
    all
}

fn starts_a_part(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// Each place where `text` holds one of the words `needles`.
fn refused(
    rule: &'static str,
    source: &Source,
    text: &str,
    needles: &str,
    why: &str,
) -> Vec<Finding> {
    let found = needles
        .split(' ')
        .flat_map(|needle| words(text, needle).map(move |at| (needle, at)));
    let found = found.map(|(needle, at)| (line_of(text, at), format!("`{needle}`: {why}")));
    found
        .map(|(line, text)| finding(rule, &source.path, line, text))
        .collect()
}

fn hash_order(tree: &Tree, source: &Source) -> Vec<Finding> {
    let mut all = Vec::new();
    let siblings = tree
        .sources
        .iter()
        .filter(|sibling| sibling.package() == source.package());
    let names: BTreeSet<String> = siblings
        .flat_map(|sibling| hashed_names(&sibling.product))
        .collect();
    for name in names {
        for at in words(&source.product, &name) {
            let rest = source.product[at + name.len()..].trim_start();
            let Some(call) = rest.strip_prefix('.').map(str::trim_start) else {
                continue;
            };
            let method = call
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            if let Some(method) = method.filter(|method| UNORDERED.split(' ').any(|m| m == *method))
            {
                let text = format!("`{name}.{method}`: its order differs from run to run");
                all.push(finding(
                    "hash-order",
                    &source.path,
                    line_of(&source.product, at),
                    text,
                ));
            }
        }
    }
    all
}

/// Names of fields and variables that are declared as hash tables.
fn hashed_names(code: &str) -> impl Iterator<Item = String> {
    code.lines().filter_map(|line| {
        let at = HASHED
            .split(' ')
            .filter_map(|hashed| words(line, hashed).next())
            .min()?;
        let before = line[..at].replace("::", "  ");
        let (declared, _) = before.rsplit_once([':', '='])?;
        let name = declared
            .trim_end()
            .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
            .next()?;
        (!name.is_empty()).then(|| name.to_owned())
    })
}

fn unsafe_code(source: &Source) -> Vec<Finding> {
    let may = matches!(kind(source.package()), Some(Kind::Unsafe));
    let fault = |line, text: &str| finding("unsafe", &source.path, line, text);
    let mut all = Vec::new();
    let (_, file) = source.path.rsplit_once("src/").unwrap_or_default();
    let is_root = matches!(file, "lib.rs" | "main.rs") || file.starts_with("bin/");
    if is_root && !may && !source.code.contains("#![forbid(unsafe_code)]") {
        all.push(fault(1, "a crate root without `#![forbid(unsafe_code)]`"));
    }
    let lines: Vec<&str> = source.raw.lines().map(str::trim).collect();
    for at in words(&source.code, "unsafe") {
        let line = line_of(&source.code, at);
        let before = lines[..line - 1].iter().rev().take_while(|text| {
            let ends = text.is_empty() || text.ends_with([';', '{', '}']);
            text.starts_with("//") || text.starts_with("#[") || !ends
        });
        let argued = before
            .chain([&lines[line - 1]])
            .any(|text| text.contains("SAFETY:"));
        if !may {
            all.push(fault(line, "`unsafe` outside the crates that may"));
        } else if !argued {
            all.push(fault(line, "`unsafe` without `// SAFETY:`"));
        }
    }
    all
}

fn lengths(source: &Source, is_test: bool) -> Vec<Finding> {
    let mut all = Vec::new();
    let test_lines = source
        .code
        .lines()
        .zip(source.product.lines())
        .filter(|(code, product)| code != product);
    let lines = source.raw.lines().count() - test_lines.count();
    if !is_test && lines > FILE_LINES_WARN {
        let text =
            format!("{lines} lines: at most {FILE_LINES_MAX}, better below {FILE_LINES_WARN}");
        let warning = lines <= FILE_LINES_MAX;
        all.push(Finding {
            warning,
            ..finding("length", &source.path, 1, text)
        });
    }
    for (name, line, lines) in functions(&source.code) {
        if lines > FUNCTION_LINES_MAX {
            let text = format!("`{name}` has {lines} lines: at most {FUNCTION_LINES_MAX}");
            all.push(finding("length", &source.path, line, text));
        }
    }
    all
}
