//! Tests token files with various applications.

use std::fs;

use super::*;

fn app(text: &str) -> AppAddr {
    match text {
        "unix" => AppAddr::Unix,
        _ => AppAddr::Ip(text.parse().expect("an address and port")),
    }
}

#[track_caller]
fn check(file: &str, from: &str, expected: &str) {
    assert_eq!(find(file, app(from)).expect("a token"), expected);
}

/// Checks the error's text.
#[track_caller]
fn check_error(file: &str, from: &str, expected: &str) {
    assert_eq!(
        find(file, app(from)).expect_err("no token").to_string(),
        expected
    );
}

#[test]
fn line_with_the_address_of_the_application_is_taken() {
    let file = "10.0.0.1 tcp:127.0.0.1:22\n10.0.0.2 tcp:127.0.0.1:80\n";
    check(file, "10.0.0.1:5000", "tcp:127.0.0.1:22");
    check(file, "10.0.0.2:5000", "tcp:127.0.0.1:80");
}

#[test]
fn addresses_are_compared_as_a_whole_and_not_by_prefix() {
    let file = "10.0.0.10 ten\n10.0.0.1 one\n10.0.0.100 hundred\n";
    check(file, "10.0.0.1:1", "one");
    check(file, "10.0.0.10:1", "ten");
    check("10.0.0.10 ten\n* all\n", "10.0.0.1:1", "all");
    check_error(
        "10.0.0.10 ten\n",
        "10.0.0.1:1",
        "no line for 10.0.0.1:1: add '10.0.0.1 TOKEN', or '* TOKEN' for all applications without a line",
    );
}

#[test]
fn ipv6_addresses_are_found_however_written() {
    for line in [
        "2001:db8::1 six",
        "[2001:db8::1] six",
        "2001:DB8:0:0::1 six",
        "2001:0db8::0001 six",
    ] {
        check(line, "[2001:db8::1]:5000", "six");
    }
    check(
        "2001:db8::10 ten\n2001:db8::1 one\n",
        "[2001:db8::1]:5000",
        "one",
    );
    check("[::1] loop\n", "[::1]:1", "loop");
}

#[test]
fn tabs_separate_as_well() {
    check(
        "10.0.0.1\ttcp:127.0.0.1:22\n",
        "10.0.0.1:1",
        "tcp:127.0.0.1:22",
    );
    check(
        "\t10.0.0.1 \t tcp:127.0.0.1:22\t\n",
        "10.0.0.1:1",
        "tcp:127.0.0.1:22",
    );
}

#[test]
fn several_spaces_do_not_make_an_empty_token() {
    check(
        "  10.0.0.1    tcp:127.0.0.1:22  \n",
        "10.0.0.1:1",
        "tcp:127.0.0.1:22",
    );
}

#[test]
fn line_without_a_token_is_an_error_and_not_a_crash() {
    let expected = "line 2 has an address but no token: write ADDRESS TOKEN, as in '10.0.0.1 tcp:127.0.0.1:22'";
    check_error("# head\n10.0.0.1\n", "10.0.0.1:1", expected);
    check_error("\n10.0.0.1 \t\n* all", "10.0.0.1:1", expected);
    check("10.0.0.2\n10.0.0.1 one\n", "10.0.0.1:1", "one");
}

#[test]
fn applications_on_unix_sockets_have_lines_of_their_own() {
    check("10.0.0.1 ip\nunix socket\n* all\n", "unix", "socket");
    check("10.0.0.1 ip\n* all\n", "unix", "all");
    check("* all\nunix socket\n", "unix", "socket");
    check("unix socket\n* all\n", "10.0.0.1:1", "all");
    check_error(
        "10.0.0.1 ip\n",
        "unix",
        "no line for unix: add 'unix TOKEN', or '* TOKEN' for all applications without a line",
    );
    check_error(
        "unix socket\n",
        "10.0.0.1:1",
        "no line for 10.0.0.1:1: add '10.0.0.1 TOKEN', or '* TOKEN' for all applications without a line",
    );
}

#[test]
fn mapped_addresses_equal_their_ipv4_form() {
    check("10.0.0.1 four\n", "[::ffff:10.0.0.1]:1", "four");
    check("::ffff:10.0.0.1 four\n", "10.0.0.1:1", "four");
    check("[::ffff:a00:1] four\n", "10.0.0.1:1", "four");
    check_error(
        "10.0.0.2 x",
        "[::ffff:10.0.0.1]:9",
        "no line for 10.0.0.1:9: add '10.0.0.1 TOKEN', or '* TOKEN' for all applications without a line",
    );
}

#[test]
fn blank_lines_comments_and_line_ends_of_all_kinds_are_skipped() {
    let file = "\u{feff}# tokens\r\n\r\n   \n\t# indented 10.0.0.1 no\n10.0.0.1 tcp:a:1 # rest is ignored\r\n";
    check(file, "10.0.0.1:1", "tcp:a:1");
    check("10.0.0.1 tcp:a:1", "10.0.0.1:1", "tcp:a:1");
    check("\u{feff}10.0.0.1 tcp:a:1", "10.0.0.1:1", "tcp:a:1");
    check_error(
        "",
        "10.0.0.1:1",
        "no line for 10.0.0.1:1: add '10.0.0.1 TOKEN', or '* TOKEN' for all applications without a line",
    );
}

#[test]
fn first_of_equal_lines_wins_and_an_address_before_everyone() {
    check("10.0.0.1 first\n10.0.0.1 second\n", "10.0.0.1:1", "first");
    check("* all\n10.0.0.1 one\n", "10.0.0.1:1", "one");
    check("* first\n* second\n", "10.0.0.1:1", "first");
}

#[test]
fn lines_without_meaning_are_named_only_where_no_other_fits() {
    let file = "10.0.0.0/8 net\nlocalhost name\n10.0.0.1 one\n";
    check(file, "10.0.0.1:1", "one");
    check_error(
        file,
        "10.0.0.2:1",
        "no line for 10.0.0.2:1, and line 1 begins with \"10.0.0.0/8\", which is not an address: write an IP address without port or network, 'unix' or '*'",
    );
    for no_address in [
        "10.0.0.2:1",
        "[10.0.0.2]",
        "[::1",
        "10.0.0",
        "fe80::1%eth0",
        "UNIX",
    ] {
        let file = format!("\n{no_address} x");
        let error = find(&file, app("10.0.0.2:1")).expect_err(no_address);
        assert!(
            matches!(error, FileError::NoAddress { line: 2, .. }),
            "{no_address}: {error:?}"
        );
    }
}

#[test]
fn file_is_read_again_for_each_flow_and_with_a_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tokens");
    let ask = || token(&path, app("10.0.0.1:1"));
    assert!(matches!(ask(), Err(FileError::Read(ReadError::Io(_)))));

    fs::write(&path, "10.0.0.1 one\n").expect("written");
    assert_eq!(ask().expect("a token"), "one");
    fs::write(&path, "10.0.0.1 two\n").expect("written");
    assert_eq!(ask().expect("a token"), "two");

    let line = "10.0.0.1 big\n";
    let limit = usize::try_from(MAX_FILE).expect("it fits");
    fs::write(&path, line.to_owned() + &"#".repeat(limit - line.len())).expect("written");
    assert_eq!(ask().expect("a token"), "big");
    fs::write(&path, line.to_owned() + &"#".repeat(limit - line.len() + 1)).expect("written");
    assert!(matches!(
        ask(),
        Err(FileError::Read(ReadError::TooLarge { .. }))
    ));

    fs::write(&path, b"# one\n10.0.0.1 x\n\xff\n").expect("written");
    let error = ask().expect_err("no text");
    assert_eq!(
        error.to_string(),
        "line 3 is not UTF-8 text: save the file as UTF-8"
    );
}

proptest::proptest! {
    #[test]
    fn no_file_makes_the_parser_panic(file in "(\\PC|[\n\t #*\\[\\]:.0-9a-f]){0,200}") {
        for from in ["10.0.0.1:1", "[::1]:1", "unix"] {
            if let Ok(token) = find(&file, app(from)) {
                // Only spaces and tabs separate words. Other scripts have more white space, such as U+2028.
                assert!(!token.is_empty() && !token.contains([' ', '\t', '\n']));
            }
        }
    }
}
