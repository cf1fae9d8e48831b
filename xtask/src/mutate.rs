//! Implements `cargo xtask mutate`: checks that the tests notice faults.
//!
//! `mutations.toml` lists faults; each one changes a line. [`run`] inserts one fault after the other in a worktree of
//! the last commit, and runs the tests of the crate that contains it. If they pass, the fault is printed as missed and
//! needs a test. The line is found by its text, so it may move to another file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::tidy::Tree;

const LIST: &str = "xtask/mutations.toml";

/// A fault to insert into the code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mutation {
    /// Part of a line, or several lines. The text occurs once in the product.
    text: String,
    /// The text that replaces it.
    instead: String,
    /// The arguments of `cargo test`, or `None` to run all tests of the crate.
    test: Option<String>,
}

/// The result of one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MutationOutcome {
    Caught,
    Missed,
    /// The changed code does not compile: the list needs another fault.
    Senseless,
}

/// Parses the list of faults.
pub(crate) fn parse(text: &str) -> Result<Vec<Mutation>> {
    let table: toml::Table = text.parse()?;
    let list = table.get("mutation").and_then(toml::Value::as_array);
    let read = |entry: &toml::Value| {
        let field = |name: &str| entry.get(name).and_then(toml::Value::as_str);
        Ok(Mutation {
            text: field("text").context("text is missing")?.to_owned(),
            instead: field("instead").context("instead is missing")?.to_owned(),
            test: field("test").map(str::to_owned),
        })
    };
    list.into_iter().flatten().map(read).collect()
}

impl Mutation {
    /// Returns the path of the file that contains the text. Fails unless the text occurs exactly once.
    fn find<'a>(&self, tree: &'a Tree) -> Result<&'a str> {
        let count = |source: &&crate::source::Source| source.raw.matches(&self.text).count();
        let mut found = tree.products().filter(|source| count(source) > 0);
        let first = found
            .next()
            .with_context(|| format!("no file has {:?}", self.text))?;
        let only = found.next().is_none() && count(&first) == 1;
        ensure!(only, "{:?} is in more than one place", self.text);
        Ok(&first.path)
    }

    /// Returns the arguments of `cargo` that test this fault in the file `path`.
    fn test(&self, path: &str) -> Result<Vec<String>> {
        let own = || {
            let package = path.strip_prefix("crates/")?.split('/').next()?;
            Some(format!("-p quictun-{package}"))
        };
        let test = self.test.clone().or_else(own);
        let test = test.with_context(|| format!("{path} is not below crates/: set `test`"))?;
        let test = test.split_whitespace().map(str::to_owned);
        Ok(["test".to_owned(), "--quiet".to_owned()]
            .into_iter()
            .chain(test)
            .collect())
    }
}

/// Inserts every fault whose text or path contains `only`, and prints the results. Returns whether all were caught.
///
/// If `dry` is set, prints the location of each fault and changes nothing.
pub(crate) fn run(root: &Path, only: &str, dry: bool) -> Result<bool> {
    let list = parse(&std::fs::read_to_string(root.join(LIST))?)?;
    let place = root.join("target/mutate");
    let ground = if dry {
        root.to_path_buf()
    } else {
        worktree(root, &place)?
    };
    let tree = Tree::read(&ground)?;
    let mut counts = [0; 4];
    for mutation in &list {
        let path = match mutation.find(&tree) {
            Ok(path) => path,
            Err(error) => {
                println!("lost       {error}");
                counts[3] += 1;
                continue;
            }
        };
        if !path.contains(only) && !mutation.text.contains(only) {
            continue;
        }
        if dry {
            println!("{path}: {}", mutation.text);
            continue;
        }
        let began = Instant::now();
        let outcome = attempt(mutation, &ground, path, &place.join("build"))?;
        counts[outcome as usize] += 1;
        let took = began.elapsed().as_secs();
        println!(
            "{:10} {path}: {} -> {} ({took} s)",
            outcome.word(),
            mutation.text,
            mutation.instead
        );
    }
    let [caught, missed, senseless, lost] = counts;
    println!("{caught} caught, {missed} missed, {senseless} senseless, {lost} lost");
    Ok(missed + senseless + lost == 0)
}

/// Returns a clean worktree of the last commit, and creates it if necessary.
fn worktree(root: &Path, place: &Path) -> Result<PathBuf> {
    let ground = place.join("tree");
    if !ground.exists() {
        let path = ground
            .to_str()
            .context("the path of the worktree is not UTF-8")?;
        git(root, &["worktree", "prune"])?;
        git(
            root,
            &["worktree", "add", "--quiet", "--detach", path, "HEAD"],
        )?;
    }
    let head = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(root)
        .output()?;
    let head = String::from_utf8(head.stdout)?;
    git(
        &ground,
        &["checkout", "--quiet", "--force", "--detach", head.trim()],
    )?;
    Ok(ground)
}

fn git(at: &Path, arguments: &[&str]) -> Result<()> {
    let status = Command::new("git")
        .args(arguments)
        .current_dir(at)
        .status()?;
    ensure!(status.success(), "git {arguments:?}: {status}");
    Ok(())
}

fn attempt(
    mutation: &Mutation,
    ground: &Path,
    path: &str,
    build: &Path,
) -> Result<MutationOutcome> {
    let file = ground.join(path);
    let before = std::fs::read_to_string(&file)?;
    std::fs::write(&file, before.replacen(&mutation.text, &mutation.instead, 1))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let passes = |more: &[&str]| -> Result<bool> {
        let mut command = Command::new(&cargo);
        command
            .args(mutation.test(path)?)
            .args(more)
            .current_dir(ground);
        Ok(command
            .env("CARGO_TARGET_DIR", build)
            .output()?
            .status
            .success())
    };
    let outcome =
        match passes(&["--no-run"]).and_then(|builds| Ok((builds, builds && passes(&[])?))) {
            Ok((false, _)) => Ok(MutationOutcome::Senseless),
            Ok((true, false)) => Ok(MutationOutcome::Caught),
            Ok((true, true)) => Ok(MutationOutcome::Missed),
            Err(error) => Err(error),
        };
    std::fs::write(&file, before)?;
    outcome
}

impl MutationOutcome {
    fn word(self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::Missed => "MISSED",
            Self::Senseless => "senseless",
        }
    }
}

/// Parses the arguments after `mutate`: either a part of a path or text, or `--list`.
pub(crate) fn arguments<'a>(given: &[&'a str]) -> Result<(&'a str, bool)> {
    match *given {
        [] => Ok(("", false)),
        ["--list"] => Ok(("", true)),
        [only] => Ok((only, false)),
        _ => bail!("usage: cargo xtask mutate [PART | --list]"),
    }
}

#[cfg(test)]
mod tests {
    use super::{LIST, Mutation, parse};
    use crate::tidy::Tree;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.add(path, Some((*text).to_owned()));
        }
        tree
    }

    #[test]
    fn a_fault_is_found_by_its_text_in_one_place_of_the_product() {
        let list = parse("[[mutation]]\ntext = 'a < b'\ninstead = 'a <= b'\n").expect("a list");
        let [mutation] = &list[..] else {
            panic!("{list:?}")
        };
        let find = |files: &[(&str, &str)]| {
            let tree = tree(files);
            mutation
                .find(&tree)
                .map(str::to_owned)
                .map_err(|error| error.to_string())
        };
        let one = ("crates/x/src/one.rs", "if a < b {}");
        let test = ("crates/x/tests/it/main.rs", "a < b");
        assert_eq!(find(&[one, test]), Ok("crates/x/src/one.rs".to_owned()));
        assert!(find(&[test]).is_err_and(|why| why.starts_with("no file")));
        let twice = ("crates/x/src/two.rs", "a < b; a < b");
        assert!(find(&[twice]).is_err_and(|why| why.ends_with("more than one place")));
        assert!(find(&[one, twice]).is_err());
    }

    #[test]
    fn every_fault_of_the_list_has_its_place() {
        let root = crate::root();
        let list = std::fs::read_to_string(root.join(LIST)).expect("the list can be read");
        let tree = Tree::read(root).expect("the repository can be read");
        for mutation in parse(&list).expect("a list") {
            mutation.find(&tree).expect("a renewed entry");
        }
    }

    #[test]
    fn its_own_crate_tests_it_unless_told_otherwise() {
        let mutation = |test: Option<&str>| Mutation {
            text: String::new(),
            instead: String::new(),
            test: test.map(str::to_owned),
        };
        let arguments = |test, path| mutation(test).test(path).map(|words| words.join(" ")).ok();
        assert_eq!(
            arguments(None, "crates/lab-run/src/a/b.rs").as_deref(),
            Some("test --quiet -p quictun-lab-run")
        );
        assert_eq!(
            arguments(Some("-p quictun-sim x"), "y").as_deref(),
            Some("test --quiet -p quictun-sim x")
        );
        assert_eq!(arguments(None, "xtask/src/main.rs"), None);
    }
}
