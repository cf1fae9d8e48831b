//! Implements `cargo xtask dependencies`: recomputes the facts about dependencies that `docs/DEPENDENCIES.md` states.
//!
//! [`report`] asks cargo which packages a build for this system includes. It writes one table row for each direct
//! dependency.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::rules::dependency_rows;

/// A package's name and version, as `cargo tree` prints them.
type Package<'a> = &'a str;

/// The dependency graph of the workspace, with the licence of each package.
#[derive(Debug, Default)]
struct Graph<'a> {
    members: BTreeSet<Package<'a>>,
    needs: BTreeMap<Package<'a>, BTreeSet<Package<'a>>>,
    licences: BTreeMap<Package<'a>, &'a str>,
}

/// Returns the table of direct dependencies, and the errors in `document`.
pub(crate) fn report(root: &Path, document: &str) -> Result<(String, Vec<String>)> {
    let tree = tree(root)?;
    let graph = Graph::new(&tree);
    let direct = graph.direct();
    let all = graph.reached(direct.keys().copied());
    let mut table = "| crate | licence | brings | used by |\n|---|---|---|---|\n".to_owned();
    let mut licences = BTreeMap::new();
    for (package, users) in &direct {
        let others = direct.keys().copied().filter(|other| other != package);
        // The count includes the package itself, unless another direct dependency needs it.
        let brings = all.len() - graph.reached(others).len();
        let users: Vec<_> = users.iter().map(|user| name(user)).collect();
        let (name, users) = (name(package), users.join(", "));
        let licence = graph.licences[package].replace('/', " OR ");
        writeln!(table, "| `{name}` | {licence} | {brings} | {users} |")?;
        licences.insert(name, licence);
    }
    let wrong = dependency_rows(document).filter_map(|(at, name)| {
        let licence = licences.get(name)?;
        let line = document.lines().nth(at - 1)?;
        let is_so = line.split(" | ").nth(1)? == licence;
        (!is_so).then(|| format!("line {at}: the licence of `{name}` is {licence}"))
    });
    let wrong = wrong.collect();
    Ok((table, wrong))
}

/// Returns the dependency tree of each workspace member, one package per line: `DEPTH NAME VERSION|LICENCE`.
///
/// A line ends with `(*)` if the dependencies of the package have been listed before.
fn tree(root: &Path) -> Result<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--edges", "normal,build,dev"])
        .args(["--prefix", "depth", "--format", " {p}|{l}"])
        .current_dir(root)
        .output()
        .context("starting cargo tree")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo tree: {errors}");
    String::from_utf8(output.stdout).context("the output of cargo tree is not UTF-8")
}

/// Returns a package's name, without the prefix `quictun-` of the workspace members.
fn name(package: Package<'_>) -> &str {
    let name = package.split(' ').next().unwrap_or_default();
    name.trim_start_matches("quictun-")
}

impl<'a> Graph<'a> {
    fn new(tree: &'a str) -> Self {
        let mut graph = Self::default();
        let mut above: Vec<Package<'_>> = Vec::new();
        for (depth, package, licence) in tree.lines().filter_map(line) {
            above.truncate(depth);
            match above.last() {
                Some(parent) => {
                    graph.needs.entry(parent).or_default().insert(package);
                }
                None => {
                    graph.members.insert(package);
                }
            }
            graph.licences.insert(package, licence);
            above.push(package);
        }
        graph
    }

    /// Returns each foreign package that a workspace member depends on directly, with those members.
    fn direct(&self) -> BTreeMap<Package<'a>, BTreeSet<Package<'a>>> {
        let mut direct: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for member in &self.members {
            for need in self.needs.get(member).into_iter().flatten() {
                if !self.members.contains(need) {
                    direct.entry(*need).or_default().insert(*member);
                }
            }
        }
        direct
    }

    /// Returns these packages and their transitive dependencies.
    fn reached(&self, from: impl Iterator<Item = Package<'a>>) -> BTreeSet<Package<'a>> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<_> = from.collect();
        while let Some(package) = next.pop() {
            if reached.insert(package) {
                next.extend(self.needs.get(package).into_iter().flatten());
            }
        }
        reached
    }
}

/// Parses a line of `cargo tree` into depth, package and licence.
fn line(line: &str) -> Option<(usize, Package<'_>, &str)> {
    let (depth, rest) = line.split_once(' ')?;
    let (package, licence) = rest.split_once('|')?;
    // A path or the mark of a procedural macro may follow in parentheses.
    let package = package.split(" (").next()?;
    Some((
        depth.parse().ok()?,
        package,
        licence.trim_end_matches(" (*)"),
    ))
}
