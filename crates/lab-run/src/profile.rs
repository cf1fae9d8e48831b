//! Profiles an arm's programs by sampling their stacks. Sampling takes time, so it has a run of its own that
//! contributes no figures.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use quictun_lab::Profile;
use quictun_sys::{StackSample, StackSampler};

use crate::symbols::{Mapping, Symbols};

/// Maximum number of distinct stacks that are kept of a program, the most frequent ones. The others would be too narrow
/// to see.
const STACKS: usize = 1500;

#[derive(Debug)]
pub(crate) struct Profiler {
    sampler: StackSampler,
    watched: BTreeSet<u32>,
    /// The role of each process, by its id.
    roles: BTreeMap<u32, &'static str>,
    mappings: BTreeMap<u32, Vec<Mapping>>,
    seen: BTreeMap<AddressStack, u64>,
    refused: Option<io::Error>,
}

/// A stack as addresses. It contains only the innermost address of the program itself: without frame pointers the
/// callers are unknown.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AddressStack {
    process: u32,
    program: Option<u64>,
    kernel: Vec<u64>,
}

impl Profiler {
    pub(crate) fn new() -> Self {
        Self {
            sampler: StackSampler::open(),
            watched: BTreeSet::new(),
            roles: BTreeMap::new(),
            mappings: BTreeMap::new(),
            seen: BTreeMap::new(),
            refused: None,
        }
    }

    pub(crate) fn look(&mut self, threads: impl Iterator<Item = (u32, &'static str)>) {
        for (thread, role) in threads {
            if self.watched.insert(thread) {
                match self.sampler.watch(thread) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => self.refused = Some(error),
                }
                // Samples name the process, so only the entries of main threads, whose id equals the process id, are
                // ever used.
                self.roles.insert(thread, role);
            }
        }
        let (seen, mappings) = (&mut self.seen, &mut self.mappings);
        self.sampler.read(|stack| {
            let StackSample {
                process,
                kernel,
                user,
            } = stack;
            mappings
                .entry(process)
                .or_insert_with(|| Mapping::all(process));
            let one = AddressStack {
                process,
                program: user.first().copied(),
                kernel,
            };
            *seen.entry(one).or_default() += 1;
        });
    }

    /// Returns the profile of each program. Fails with the system's error if it permitted no samples.
    pub(crate) fn finish(self, case: &str, arm: &str) -> io::Result<Vec<Profile>> {
        if self.seen.is_empty()
            && let Some(error) = self.refused
        {
            return Err(error);
        }
        let mut names = SymbolTables::new();
        let mut by_role: BTreeMap<&str, (u64, BTreeMap<String, u64>)> = BTreeMap::new();
        for (one, count) in &self.seen {
            let Some(role) = self.roles.get(&one.process) else {
                continue;
            };
            let mappings = self
                .mappings
                .get(&one.process)
                .map_or(&[][..], Vec::as_slice);
            let (unnamed, stacks) = by_role.entry(role).or_default();
            let folded = names.folded(one, mappings);
            *unnamed += if folded.is_innermost_named { 0 } else { *count };
            *stacks.entry(folded.stack).or_default() += count;
        }
        let profile = |(role, (unnamed, stacks)): (&str, (u64, BTreeMap<String, u64>))| {
            let samples = stacks.values().sum();
            let mut stacks: Vec<(String, u64)> = stacks.into_iter().collect();
            stacks.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            stacks.truncate(STACKS);
            Profile {
                case: case.to_owned(),
                arm: arm.to_owned(),
                role: role.to_owned(),
                samples,
                lost: self.sampler.lost(),
                with_kernel: self.sampler.sees_kernel(),
                unnamed,
                stacks,
            }
        };
        Ok(by_role.into_iter().map(profile).collect())
    }
}

struct FoldedStack {
    stack: String,
    is_innermost_named: bool,
}

struct SymbolTables {
    kernel: Symbols,
    programs: BTreeMap<PathBuf, Symbols>,
}

impl SymbolTables {
    fn new() -> Self {
        Self {
            kernel: Symbols::kernel(),
            programs: BTreeMap::new(),
        }
    }

    /// Joins the names of a stack's functions, from the outermost to the innermost.
    fn folded(&mut self, one: &AddressStack, mappings: &[Mapping]) -> FoldedStack {
        let mut is_innermost_named = true;
        let mut named = |name: Result<String, String>| {
            is_innermost_named = name.is_ok();
            name.unwrap_or_else(|place| place)
        };
        let program = one.program.map(|address| self.program(address, mappings));
        let mut all: Vec<String> = program.map(&mut named).into_iter().collect();
        for address in one.kernel.iter().rev() {
            let name = self.kernel.find(*address).map(clean);
            all.push(named(name.ok_or_else(|| "[kernel]".to_owned())));
        }
        FoldedStack {
            stack: all.join(";"),
            is_innermost_named,
        }
    }

    /// Returns the name of the function at an address. If it is unknown, the error is the name of the file in brackets.
    fn program(&mut self, address: u64, mappings: &[Mapping]) -> Result<String, String> {
        let found = mappings
            .iter()
            .find_map(|mapping| Some((mapping, mapping.in_file(address)?)));
        let Some((mapping, place)) = found else {
            return Err("[unknown]".to_owned());
        };
        // A mapping without a file, such as `[vdso]`, has only this name.
        if mapping.path.starts_with('[') {
            return Ok(mapping.path.clone());
        }
        let path = Path::new(&mapping.path);
        let symbols = self
            .programs
            .entry(path.to_owned())
            .or_insert_with(|| Symbols::program(path));
        let file = path.file_name().map_or(&*mapping.path, |name| {
            name.to_str().unwrap_or(&mapping.path)
        });
        let name = symbols.find(place).map(clean);
        name.ok_or_else(|| format!("[{file}]"))
    }
}

/// Replaces the character that separates names in a stack.
fn clean(name: &str) -> String {
    name.replace(';', ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_without_symbols_are_counted() {
        let one = |process| AddressStack {
            process,
            program: Some(7),
            kernel: Vec::new(),
        };
        let mut profiler = Profiler::new();
        profiler.roles = [(1, "client"), (2, "client"), (3, "server")].into();
        let lent = Mapping::read("0-10 r-xp 0 00:00 0 [vdso]").expect("a mapping");
        profiler.mappings = [(2, vec![lent.clone()]), (3, vec![lent])].into();
        profiler.seen = [(one(1), 3), (one(2), 2), (one(3), 1)].into();
        let profiles = profiler.finish("a case", "an arm").expect("profiles");
        let told: Vec<_> = profiles
            .iter()
            .map(|profile| (&*profile.role, profile.samples, profile.unnamed))
            .collect();
        assert_eq!(told, [("client", 5, 3), ("server", 1, 0)]);
    }

    #[test]
    fn a_caller_without_a_name_is_not_counted() {
        let lent = Mapping::read("0-10 r-xp 0 00:00 0 [vdso]").expect("a mapping");
        for (program, kernel, is_innermost_named) in [
            (7, &[][..], true),
            (99, &[], false),
            (7, &[0], false),
            (99, &[200], true),
        ] {
            let one = AddressStack {
                process: 1,
                program: Some(program),
                kernel: kernel.to_vec(),
            };
            let mut names = SymbolTables::new();
            names.kernel = Symbols::sorted(vec![(100, "a_call".to_owned())]);
            let folded = names.folded(&one, std::slice::from_ref(&lent));
            assert_eq!(
                folded.is_innermost_named, is_innermost_named,
                "{}",
                folded.stack
            );
        }
    }

    /// Calls no other function, so that samples show this function and none of the standard library.
    #[inline(never)]
    fn count_up() {
        let mut left = std::hint::black_box(2_000_000_u64);
        while left > 0 {
            left -= 1;
        }
    }

    #[test]
    fn a_busy_program_is_sampled_in_its_own_functions() {
        let mut profiler = Profiler::new();
        let process = std::process::id();
        let thread =
            u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).expect("positive");
        let look = |profiler: &mut Profiler| {
            profiler.look([(process, "test"), (thread, "test")].into_iter());
        };
        look(&mut profiler);
        // The loop is limited by work and not by time. The work suffices for more than a second of samples.
        for _ in 0..400 {
            count_up();
            look(&mut profiler);
            if profiler.seen.values().sum::<u64>() > 20 {
                break;
            }
        }
        match profiler.finish("a case", "an arm") {
            Ok(profiles) => {
                let [profile] = &profiles[..] else {
                    panic!("{profiles:?}");
                };
                assert_eq!(
                    (&*profile.case, &*profile.arm, &*profile.role),
                    ("a case", "an arm", "test")
                );
                assert!(profile.samples > 20);
                let named = profile
                    .stacks
                    .iter()
                    .any(|(stack, _)| stack.contains("quictun_lab_run"));
                assert!(named, "{:?}", profile.stacks);
            }
            Err(error) => {
                let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];
                assert!(kinds.contains(&error.kind()), "{error}");
                let test = "profile::tests::a_busy_program_is_sampled_in_its_own_functions";
                quictun_skip::skipped(test, error);
            }
        }
    }
}
