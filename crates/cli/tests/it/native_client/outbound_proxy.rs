//! The outbound proxy of a client: `--via`, and the variables that other programs use, too.

use super::{lines, minimal};
use crate::test_inputs::{TestInputs, fault};
use quictun_args::fault::Exit;

/// Returns the outbound proxy with these flags, and its settings in words.
fn found(inputs: &TestInputs, flags: &str) -> Option<(String, String)> {
    let line = format!("{} {flags}", minimal());
    let client = inputs.native_client(&line);
    let client = client.unwrap_or_else(|fault| panic!("{line}: {fault}"));
    let proxy = client.outbound_proxy?;
    Some((
        format!("{proxy} by {}", proxy.named_by),
        format!("{proxy:?}"),
    ))
}

fn named(inputs: &TestInputs, flags: &str) -> Option<String> {
    found(inputs, flags).map(|(named, _)| named)
}

#[test]
fn a_flag_goes_before_the_file_and_the_file_before_the_environment() {
    let environment = TestInputs::default()
        .env("ALL_PROXY", "socks5h://all.example:1")
        .env("HTTPS_PROXY", "http://upper.example:2");
    let by = |text: &str| Some(text.to_owned());
    assert_eq!(named(&TestInputs::default(), ""), None);
    assert_eq!(
        named(&environment, ""),
        by("http://upper.example:2 by HTTPS_PROXY")
    );
    let lower = environment.clone().env("https_proxy", "lower.example:3");
    assert_eq!(
        named(&lower, ""),
        by("http://lower.example:3 by https_proxy")
    );
    assert_eq!(named(&lower, "--via none"), None);
    let flag = "--via socks5://flag.example";
    assert_eq!(
        named(&lower, flag),
        by("socks5h://flag.example:1080 by --via")
    );
    let own = lower.clone().env("QUICTUN_VIA", "own.example");
    assert_eq!(named(&own, ""), by("http://own.example:80 by QUICTUN_VIA"));
    let file = lower.file("c.toml", "via = 'http://file.example:5'");
    assert_eq!(
        named(&file, "-c c.toml"),
        by("http://file.example:5 by c.toml: via")
    );
}

#[test]
fn exceptions_are_those_of_the_environment_and_of_this_machine() {
    let inputs = TestInputs::default()
        .env("https_proxy", "http://p:1")
        .env("no_proxy", "h,10.0.0.0/8");
    let (_, settings) = found(&inputs, "").expect("a proxy");
    for exception in ["localhost", "127.0.0.0", "\"h\"", "10.0.0.0"] {
        assert!(settings.contains(exception), "{settings}");
    }
    let (_, settings) = found(&inputs, "--via http://p:1").expect("a proxy");
    assert!(settings.contains("except: NoProxy([])"), "{settings}");
}

#[test]
fn a_login_is_in_a_file_or_in_the_address_and_never_in_the_words_about_it() {
    let inputs = TestInputs::default().file("f", "ann:wonder");
    let environment = inputs.clone().env("https_proxy", "http://ann:wonder@p:1");
    let (named, settings) = found(&environment, "").expect("a proxy");
    assert_eq!(named, "http://p:1 by https_proxy");
    assert!(
        settings.contains("login: Given(") && !settings.contains("wonder"),
        "{settings}"
    );
    let (_, settings) = found(&environment, "--via-credentials f").expect("a proxy");
    assert!(settings.contains("login: File(\"f\")"), "{settings}");
    let printed = inputs
        .file("c.toml", "server = 'h'\nca = 'system'\nvia = 'http://ann:wonder@p:1'\n[[forward]]\nlisten = 1\ntarget = 'h:1'\n")
        .printed("config print --client c.toml");
    assert!(
        printed.contains("via = \"http://p:1\"") && !printed.contains("wonder"),
        "{printed}"
    );
}

#[test]
fn a_proxy_that_cannot_serve_is_an_error_unless_the_environment_names_it() {
    let inputs = TestInputs::default().env("https_proxy", "https://ann:wonder@p");
    let line = minimal();
    for (flags, message) in [
        (
            "--via http://p:1 --carrier quic",
            "--via: QUIC does not pass through a proxy: leave out --carrier quic, or take --via none",
        ),
        (
            "--via http://p:1 --tun",
            "--via: the device takes the packets to the proxy, too: leave out --via, or run single programs with `quictun run`",
        ),
        (
            "--via http://ann:wonder@p:1",
            "--via: every user of this machine can read a password on the command line",
        ),
        (
            "--via ftp://p:1",
            "--via: a proxy is http://HOST:PORT or socks5h://HOST:PORT, or none",
        ),
        (
            "--proxy http://ann:wonder@p:1",
            "--proxy: this is a proxy elsewhere, and --proxy LISTEN runs one: give --via to connect to the server through it",
        ),
        (
            "",
            "https_proxy: a proxy that is itself reached by TLS (https://) is not supported: name its port for http:// or socks5h://",
        ),
    ] {
        let (fault, exit) = fault(inputs.native_client(&format!("{line} {flags}")));
        assert_eq!(exit, Exit::Usage);
        assert!(fault.starts_with(message), "{flags}: {fault}");
        assert!(!fault.contains("wonder"), "{fault}");
    }
    for flags in ["--carrier quic", "--tun", "--via none", "--offer compat"] {
        let settings = lines(&inputs, &format!("{line} {flags}"));
        assert_eq!(settings["via"], "None", "{flags}");
    }
}
