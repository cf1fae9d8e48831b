//! Tests that the tree is tidy, and that each rule rejects a small bad sample and accepts a similar good one.

use crate::tidy::{Tree, broken, findings};

#[test]
fn the_tree_is_tidy() {
    let tree = Tree::read(crate::root()).expect("the repository can be read");
    let found = findings(&tree);
    let faults: Vec<String> = found
        .iter()
        .filter(|finding| !finding.warning)
        .map(ToString::to_string)
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Returns the lines of one file that break `rule`, without warnings.
#[track_caller]
fn lines(rule: &str, path: &str, text: &str) -> Vec<usize> {
    in_tree(rule, &[(path, text)], path)
}

fn in_tree(rule: &str, files: &[(&str, &str)], path: &str) -> Vec<usize> {
    let mut tree = Tree::default();
    for (path, text) in files {
        tree.add(path, Some((*text).to_owned()));
    }
    let found = broken(&tree);
    let found = found
        .iter()
        .filter(|f| f.rule == rule && f.path == path && !f.warning);
    found.map(|finding| finding.line).collect()
}

const PURE: &str = "crates/wire/src/a.rs";
const SHELL: &str = "crates/tunnel/src/a.rs";

#[test]
fn pure_code_has_no_clock_socket_file_or_randomness() {
    for bad in [
        "use tokio::time;",
        "use std::net::{IpAddr, UdpSocket};",
        "use std::{fs, io};",
        "fn f() { std::fs::File::open(p); }",
        "let now = Instant::now();",
        "let now = std::time::SystemTime::now();",
        "let t = start.elapsed();",
        "let x = SystemRandom::new();",
        "async fn f() {}",
        "let t = std::thread::spawn(f);",
    ] {
        assert!(lines("pure", PURE, bad).contains(&1), "{bad}");
        assert!(
            !lines("pure", "crates/sim/src/a.rs", bad).is_empty(),
            "{bad}"
        );
        assert_eq!(lines("pure", SHELL, bad), [0; 0], "{bad}");
        assert_eq!(
            lines("pure", "crates/wire/tests/it/main.rs", bad),
            [0; 0],
            "{bad}"
        );
    }
    let good = "use std::net::SocketAddr;\n// Instant::now\nlet a = \"tokio\"; let b = 'f'; let c: &'a str = r#\"std::fs \" \"#;";
    assert_eq!(lines("pure", PURE, good), [0; 0]);
}

#[test]
fn test_code_of_pure_crates_may_do_what_it_likes() {
    let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n fn g() { Instant::now(); }\n}\nfn h() { Instant::now(); }\n";
    assert_eq!(lines("pure", PURE, text), [6]);
    let apart = [
        ("crates/wire/src/lib.rs", "#[cfg(test)]\nmod bench;"),
        ("crates/wire/src/bench.rs", "Instant::now()"),
    ];
    assert_eq!(in_tree("pure", &apart, "crates/wire/src/bench.rs"), [0; 0]);
    let declared = [("crates/wire/src/lib.rs", "mod bench;"), apart[1]];
    assert_eq!(in_tree("pure", &declared, "crates/wire/src/bench.rs"), [1]);
}

#[test]
fn pure_code_does_not_depend_on_the_order_of_a_hash_table() {
    let text = "struct A {\n pub(crate) map: HashMap<u8, u8>,\n list: Vec<u8>,\n}\nfn f(a: &A) { a.map\n .values() ; a.list.iter(); a.map.get(&1); }";
    assert_eq!(lines("hash-order", PURE, text), [5]);
    assert_eq!(
        lines(
            "hash-order",
            PURE,
            "let mut seen = FxHashSet::default(); seen.drain();"
        ),
        [1]
    );
    assert_eq!(lines("hash-order", SHELL, text), [0; 0]);
}

#[test]
fn unsafe_is_confined_and_argued() {
    let argued = "fn f() {\n    // SAFETY: p is ours.\n    let x =\n        unsafe { *p };\n}";
    let bare = "fn f() {\n    // SAFETY: of the other.\n    g();\n    let x = unsafe { *p };\n}";
    assert_eq!(lines("unsafe", "crates/sys/src/a.rs", argued), [0; 0]);
    assert_eq!(lines("unsafe", "crates/sys/src/a.rs", bare), [4]);
    assert_eq!(lines("unsafe", SHELL, argued), [4]);
    assert_eq!(
        lines("unsafe", SHELL, "// unsafe\nlet a = \"unsafe\";"),
        [0; 0]
    );
    for root in [
        "crates/wire/src/lib.rs",
        "crates/cli/src/bin/x.rs",
        "xtask/src/main.rs",
    ] {
        assert_eq!(lines("unsafe", root, "fn main() {}"), [1]);
        assert_eq!(lines("unsafe", root, "#![forbid(unsafe_code)]"), [0; 0]);
    }
    assert_eq!(lines("unsafe", "crates/sys/src/lib.rs", ""), [0; 0]);
}

#[test]
fn only_programs_print_or_exit() {
    for bad in [
        "println!(\"x\");",
        "eprint!(\"x\");",
        "std::process::exit(1);",
        "dbg!(x);",
    ] {
        assert_eq!(lines("print", SHELL, bad), [1], "{bad}");
        assert_eq!(lines("print", "crates/e2e/src/lib.rs", bad), [1], "{bad}");
        assert_eq!(
            lines("print", "crates/e2e/src/bin/x.rs", bad),
            [0; 0],
            "{bad}"
        );
        assert_eq!(lines("print", "crates/cli/src/a.rs", bad), [0; 0], "{bad}");
        assert_eq!(
            lines("print", "crates/tunnel/tests/it/a.rs", bad),
            [0; 0],
            "{bad}"
        );
    }
}

#[test]
fn nothing_sleeps_and_no_test_is_switched_off() {
    let ignored = concat!("#[", "ignore]\nfn f() {}");
    assert_eq!(lines("wait", "crates/wire/tests/a.rs", ignored), [1]);
    assert_eq!(
        lines("wait", "crates/wire/tests/a.rs", "std::thread::sleep(MS);"),
        [1]
    );
    assert_eq!(
        lines(
            "wait",
            "crates/wire/tests/a.rs",
            "#[ignored_not]\nmy_thread::sleep_not();"
        ),
        [0; 0]
    );
}

#[test]
fn files_and_functions_are_short() {
    assert_eq!(lines("length", SHELL, &"// a\n".repeat(1000)), [0; 0]);
    assert_eq!(lines("length", SHELL, &"// a\n".repeat(1001)), [1]);
    let tests = format!(
        "#[cfg(test)]\nmod tests {{\n{}}}\n",
        "    f();\n".repeat(1000)
    );
    assert_eq!(lines("length", SHELL, &tests).len(), 0);
    let function = |inner: usize| {
        format!(
            "\nfn f<T>(a: [u8; 2]) -> T\nwhere T: A {{\n{}}}\n",
            "    g('}');\n".repeat(inner)
        )
    };
    assert_eq!(lines("length", SHELL, &function(117)), [0; 0]);
    assert_eq!(lines("length", SHELL, &function(118)), [2]);
    assert_eq!(
        lines("length", SHELL, &format!("fn f();\n{}", function(10))),
        [0; 0]
    );
}

#[test]
fn names_name_concepts() {
    assert_eq!(lines("name", "crates/tunnel/src/utils.rs", ""), [0]);
    assert_eq!(lines("name", "crates/tunnel/src/helpers/a.rs", ""), [0]);
    assert_eq!(
        lines("name", "crates/tunnel/src/utility_bill.rs", ""),
        [0; 0]
    );
}

#[test]
fn a_banned_type_name_is_refused() {
    for bad in [
        "\nstruct Seat;",
        "\npub enum Way<'a> {}",
        "\n    pub(crate) trait Duty {}",
        "\ntype Told = u8;",
    ] {
        assert_eq!(lines("type-name", SHELL, bad), [2], "{bad}");
    }
    for good in [
        "struct Seating;",
        "struct SeatMap;",
        "// struct Seat;",
        "const TEXT: &str = \"struct Seat;\";",
        "use other::Seat;",
        "enum Choice {\n    Way,\n}",
        "impl Walk for Road {\n    type Way = u8;\n}",
    ] {
        assert_eq!(lines("type-name", SHELL, good), [0; 0], "{good}");
    }
}

#[test]
fn at_most_three_modules_define_a_type_of_the_same_name_unless_it_is_conventional() {
    const PATHS: [&str; 4] = [
        "crates/wire/src/a.rs",
        "crates/wire/src/b.rs",
        "crates/tunnel/src/a.rs",
        "crates/tunnel/src/b.rs",
    ];
    let found = |text: &str, count: usize| {
        let files: Vec<_> = PATHS.iter().take(count).map(|path| (*path, text)).collect();
        in_tree("type-name", &files, PATHS[0])
    };
    let twice = "struct Route;\nmod inner {\n    struct Route;\n}";
    assert_eq!(found(twice, 3), [0; 0]);
    assert_eq!(found(twice, 4), [0]);
    assert_eq!(found("pub(super) struct State;", 4), [0; 0]);
}

#[test]
fn the_architecture_names_files_that_exist() {
    let mut tree = Tree::default();
    tree.add("crates/flow/src/inlet.rs", Some(String::new()));
    let text = "`flow/inlet.rs`, then `flow/src/inlet.rs`\nand `flow/gone.rs`, `Flow`, `docs/X.md`";
    tree.add("docs/ARCHITECTURE.md", Some(text.to_owned()));
    let found = findings(&tree);
    let found = found.iter().filter(|finding| finding.rule == "source-path");
    assert_eq!(found.map(|finding| finding.line).collect::<Vec<_>>(), [2]);
}

#[test]
fn the_security_model_names_tests_that_exist() {
    let mut tree = Tree::default();
    let test = "#[test]\nfn is_refused() {}".to_owned();
    tree.add("crates/sim/tests/it/greed.rs", Some(test));
    let text = "| sim: `greed::is_refused`, `is_refused`; sim: `greed::`, `greed::tests` | `quictun-x` |\n\
                | e2e: `is_refused` |\n\
                | sim: `is_refused`, `is_served` |\n\
                | sim: `thirst::is_refused` |";
    tree.add("docs/SECURITY-MODEL.md", Some(text.to_owned()));
    let found = findings(&tree);
    let found = found.iter().filter(|finding| finding.rule == "cited-test");
    assert_eq!(
        found.map(|finding| finding.line).collect::<Vec<_>>(),
        [2, 3, 4]
    );
}

#[test]
fn arrows_point_from_shell_to_pure() {
    let wire = "crates/wire/Cargo.toml";
    let engine = "crates/engine/Cargo.toml";
    let tunnel = "crates/tunnel/Cargo.toml";
    assert_eq!(
        lines("arrow", wire, "[dependencies]\nquictun-engine = {}"),
        [0]
    );
    assert_eq!(
        lines("arrow", wire, "[dependencies]\ntokio.workspace = true"),
        [0]
    );
    assert_eq!(
        lines("arrow", engine, "[dependencies]\nquictun-sys = {}"),
        [0]
    );
    assert_eq!(
        lines(
            "arrow",
            engine,
            "[target.'cfg(unix)'.dependencies]\nrustix = \"1\""
        ),
        [0]
    );
    assert_eq!(
        lines("arrow", tunnel, "[dependencies]\nquictun-cli = {}"),
        [0]
    );
    assert_eq!(
        lines("arrow", tunnel, "[dependencies]\nquictun-unheard-of = {}"),
        [0]
    );
    assert_eq!(
        lines(
            "arrow",
            "crates/sys/Cargo.toml",
            "[dependencies]\nquictun-wire = {}"
        ),
        [0]
    );
    assert_eq!(lines("arrow", "crates/unheard-of/Cargo.toml", ""), [0]);
    assert_eq!(
        lines("arrow", wire, "[dev-dependencies]\ntokio = {}"),
        [0; 0]
    );
    assert_eq!(
        lines(
            "arrow",
            tunnel,
            "[dependencies]\nquictun-engine = {}\ntokio = {}"
        ),
        [0; 0]
    );
    assert_eq!(lines("manifest", tunnel, "[dependencies"), [0]);
}

#[test]
fn refused_crates_and_git_are_refused_wherever_they_hide() {
    assert_eq!(
        lines(
            "banned-crate",
            "Cargo.toml",
            "[workspace.dependencies]\nopenssl = \"1\""
        ),
        [0]
    );
    let ring = "[dependencies]\nring = \"1\"";
    assert_eq!(lines("banned-crate", "crates/io/Cargo.toml", ring), [0]);
    assert_eq!(lines("banned-crate", "crates/tls/Cargo.toml", ring), [0; 0]);
    assert_eq!(
        lines(
            "banned-crate",
            "xtask/Cargo.toml",
            "[dev-dependencies]\nt = { package = \"chrono\" }"
        ),
        [0]
    );
    assert_eq!(
        lines(
            "banned-crate",
            "Cargo.toml",
            "[workspace.dependencies]\nrustls = \"1\""
        ),
        [0; 0]
    );
    assert_eq!(
        lines(
            "git-dependency",
            "Cargo.toml",
            "[workspace.dependencies]\na = { git = \"x\" }"
        ),
        [0]
    );
    assert_eq!(
        lines(
            "git-dependency",
            "Cargo.toml",
            "[patch.crates-io]\na = { path = \"x\" }"
        ),
        [0]
    );
    assert_eq!(
        lines(
            "git-dependency",
            "Cargo.lock",
            "name = \"a\"\nsource = \"git+https://x\""
        ),
        [2]
    );
}

#[test]
fn comments_name_their_subject_and_say_more_than_the_name() {
    const WRITTEN: &str = "crates/written/src/a.rs";
    for bad in [
        "/// Who has sent waits.\nfn f() {}",
        "/// What waits in the queue longest.\nfn f() {}",
        "//! Its own module, with more words.",
        "/// The name.\nstruct Name;",
        concat!("// Wakes some", "body who waits.\nf();"),
        concat!("log(\"No", "body answers\");"),
    ] {
        assert_eq!(lines("prose", WRITTEN, bad), [1], "{bad}");
    }
    let error = "#[error(\"{0}\")]\nRefused(String),";
    assert_eq!(lines("prose", WRITTEN, error), [2]);
    for good in [
        "/// Wakes the reader, if it sleeps.\nfn f() {}",
        "/// The\n/// name of this process.\nstruct Name;",
        "/// Returns what waits in the queue.\nfn f() {}",
        "//// no documentation",
        concat!("let no", "body = Uid(65534);"),
        "#[error(\"refused: {0}\")]\nRefused(String),",
    ] {
        assert_eq!(lines("prose", WRITTEN, good), [0; 0], "{good}");
    }
}

#[test]
fn one_module_of_each_crate_faces_the_quic_library() {
    let text = "// quinn_proto\nuse quinn_proto::StreamId;\n#[cfg(test)]\nmod tests {\n use quinn_proto::Side;\n}\n";
    for bad in [
        "crates/engine/src/traffic.rs",
        "crates/engine/src/carriers.rs",
        "crates/congestion/src/path_memory.rs",
        "crates/tunnel/src/refusal.rs",
    ] {
        assert_eq!(lines("quic-library", bad, text), [2, 5], "{bad}");
    }
    for good in [
        "crates/engine/src/carrier.rs",
        "crates/engine/src/carrier/quic.rs",
        "crates/engine/tests/it/main.rs",
        "crates/congestion/src/quinn.rs",
        "crates/sim/src/host.rs",
        "crates/perf/src/lib.rs",
        "crates/e2e/src/attack/peer.rs",
    ] {
        assert_eq!(lines("quic-library", good, text), [0; 0], "{good}");
    }
    let other = "use my_quinn_proto::StreamId;";
    assert_eq!(lines("quic-library", SHELL, other), [0; 0]);
}

#[test]
fn no_leftovers_machine_paths_or_keys() {
    assert_eq!(
        lines("leftover", SHELL, concat!("\n// FIX", "ME: later")),
        [2]
    );
    assert_eq!(lines("leftover", "docs/a.md", concat!("XX", "X")), [1]);
    assert_eq!(
        lines("leftover", SHELL, concat!("/// mkstemp's XX", "XXXX")),
        [0; 0]
    );
    assert_eq!(
        lines("machine-path", "docs/a.md", concat!("see /wo", "rk/notes")),
        [1]
    );
    assert_eq!(lines("machine-path", SHELL, concat!("\"/tm", "p/x\"")), [1]);
    assert_eq!(lines("machine-path", SHELL, "/workers/ /tmpfs"), [0; 0]);
    let key = format!(
        "-----BEGIN {}\n{}\n",
        concat!("PRIVATE", " KEY-----"),
        "A".repeat(64)
    );
    assert_eq!(lines("key", "docs/a.md", &key), [1]);
    assert_eq!(
        lines("key", "crates/tunnel/tests/fixtures/a.txt", &key),
        [0; 0]
    );
    assert_eq!(lines("key", "crates/tunnel/src/server.key", ""), [0]);
    assert_eq!(
        lines("key", "crates/tunnel/tests/fixtures/a.key", ""),
        [0; 0]
    );
}

#[test]
fn documents_teach_commands_that_exist() {
    let help = [
        (
            "crates/cli/tests/help/quictun.txt",
            "server config --version",
        ),
        (
            "crates/cli/tests/help/quictun_server.txt",
            "-h, --allow <RULE> --gso-fallback",
        ),
        ("crates/cli/tests/help/quictun_config_check.txt", "--server"),
        (
            "crates/cli/tests/help/quictun-client.txt",
            "--token[=<BOOL>]",
        ),
    ];
    let check = |language: &str, command: &str| {
        let text = format!("# T\n```{language}\n{command}\n```\n");
        in_tree(
            "command",
            &[&help[..], &[("docs/OPERATIONS.md", &text)]].concat(),
            "docs/OPERATIONS.md",
        )
    };
    assert_eq!(check("sh", "quictun server --allow a:1"), [0; 0]);
    assert_eq!(
        check(
            "console",
            "server$ quictun server \\\n  --allow a:1\nprinted --lines do not count"
        ),
        [0; 0]
    );
    assert_eq!(check("sh", "quictun config check --server x"), [0; 0]);
    assert_eq!(check("sh", "sudo ./quictun-client --token true"), [0; 0]);
    assert_eq!(check("text", "quictun fly --away"), [0; 0]);
    assert_eq!(check("sh", "quictun fly"), [3]);
    assert_eq!(check("sh", "quictun server --deny=x"), [3]);
    assert_eq!(check("sh", "quictun server --gso"), [3], "a part of a flag");
    assert_eq!(
        check("console", "$ quictun server --allow a:1 \\\n  --deny"),
        [3]
    );
    assert_eq!(check("sh", "quictun-server"), [3]);
}

#[test]
fn the_readme_has_its_two_commands() {
    let readme = "```console\n$ cargo run --release -- demo\n$ tests/run\n```\n";
    assert_eq!(lines("command", "README.md", readme), [0; 0]);
    assert_eq!(
        lines(
            "command",
            "README.md",
            "`cargo run --release -- demo`, `tests/run`"
        ),
        [0, 0]
    );
    let manifest = "crates/cli/Cargo.toml";
    assert_eq!(lines("command", manifest, "[package]"), [0]);
    assert_eq!(
        lines("command", manifest, "[package]\ndefault-run = \"quictun\""),
        [0; 0]
    );
}

#[test]
fn an_example_of_a_library_is_short_names_its_command_and_is_run() {
    let manifest = "[package]\nname = 'quictun-wire'\n\
        [[example]]\nname = 'a'\ntest = true\nharness = false";
    let example = "//! `cargo run -p quictun-wire --example a`\nfn main() {}\n";
    let found = |manifest: &str, example: &str| {
        let path = "crates/wire/examples/a.rs";
        let files = [("crates/wire/Cargo.toml", manifest), (path, example)];
        in_tree("example", &files, path).len()
    };
    assert_eq!(found(manifest, example), 0);
    assert_eq!(found(manifest, "fn main() {}"), 1);
    let lines = |count: usize| example.to_owned() + &"\n".repeat(count - 2);
    assert_eq!(found(manifest, &lines(79)), 0);
    assert_eq!(found(manifest, &lines(80)), 1);
    assert_eq!(found(&manifest.replace("test = true", ""), example), 1);
    assert_eq!(found(&manifest.replace("false", "true"), example), 1);
    assert_eq!(found(&manifest.replace("'a'", "'b'"), example), 1);
    // Examples of other crates are measurements.
    let own = manifest.replace("[[", "publish.workspace = true\n[[");
    assert_eq!(found(&own, "fn main() {}"), 0);
}

#[test]
fn an_example_is_a_program_and_reads_the_clock_and_prints() {
    let text = "fn main() { println!(\"{:?}\", std::time::Instant::now()); }";
    for rule in ["print", "pure"] {
        assert_eq!(lines(rule, "crates/wire/src/a.rs", text), [1]);
        assert_eq!(lines(rule, "crates/wire/examples/a.rs", text), [0; 0]);
    }
}

#[test]
fn each_dependency_has_a_row_and_each_row_a_dependency() {
    let manifest = "[workspace.dependencies]\nbytes = \"1\"\nfxhash = { package = \"rustc-hash\" }\nours = { path = \"a\" }";
    let rows = |document: &str| {
        let files = [("Cargo.toml", manifest), ("docs/DEPENDENCIES.md", document)];
        in_tree("dependency-row", &files, "docs/DEPENDENCIES.md")
    };
    let head = "# Dependencies\n\n| crate | for |\n|---|---|\n| `bytes` | buffers |\n";
    assert_eq!(rows(&format!("{head}| `rustc-hash` | tables |\n")), [0; 0]);
    assert_eq!(rows(head), [0], "one is missing");
    let other = format!("{head}| `rustc-hash` | tables |\n| `other` | nothing |\n");
    assert_eq!(rows(&other), [7]);
    let later =
        format!("{head}| `rustc-hash` | tables |\n\n| not | a row |\n|---|---|\n| `x` | y |\n");
    assert_eq!(rows(&later), [0; 0]);
}
