//! Tests that the committed pictures are those that this module draws, and that they show the tree as it is.

use std::collections::BTreeSet;
use std::path::Path;

use super::{DIRECTORY, all, floors};

#[test]
fn the_committed_pictures_are_up_to_date() {
    let directory = crate::root().join(DIRECTORY);
    let mut committed: BTreeSet<_> = std::fs::read_dir(&directory)
        .expect("the pictures can be listed")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    for (name, drawn) in all() {
        assert!(
            committed.remove(name),
            "{name} is missing: run `cargo xtask pictures`"
        );
        let text = std::fs::read_to_string(directory.join(name)).expect("a picture");
        assert!(
            text == drawn,
            "{name} is out of date: run `cargo xtask pictures`"
        );
    }
    assert!(
        committed.is_empty(),
        "no file of `pictures` draws {committed:?}"
    );
}

#[test]
fn the_picture_of_crates_has_every_crate_once() {
    let crates = std::fs::read_dir(crate::root().join("crates")).expect("the crates can be listed");
    let crates: BTreeSet<String> = crates
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    let drawn = floors::FLOORS.iter().flat_map(|(_, crates)| *crates);
    let drawn: Vec<String> = drawn.map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(drawn.iter().cloned().collect::<BTreeSet<_>>(), crates);
    assert_eq!(drawn.len(), crates.len(), "a crate is drawn twice");
}

#[test]
fn files_that_pictures_name_exist() {
    let mut found = 0;
    for (name, drawn) in all() {
        let words = drawn.split(|c: char| c.is_whitespace() || matches!(c, '<' | '>'));
        let is_source = |word: &&str| Path::new(word).extension().is_some_and(|end| end == "rs");
        for file in words.filter(is_source) {
            let (package, rest) = file.split_once('/').expect("a crate and a file");
            let path = crate::root()
                .join("crates")
                .join(package)
                .join("src")
                .join(rest);
            assert!(path.is_file(), "{name} names {file}, which does not exist");
            found += 1;
        }
    }
    assert!(found > 0, "the way of a byte names files");
}
