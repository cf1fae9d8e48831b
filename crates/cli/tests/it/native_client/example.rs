//! `docs/examples/client.toml`: the settings that it sets, and its completeness.

use quictun_args::native::{ConfigTask, flags};
use quictun_args::options::Flag;
use quictun_cli::native::Action;

use super::{lines, minimal};
use crate::test_inputs::{TestInputs, differ};

const EXAMPLE: &str = include_str!("../../../../../docs/examples/client.toml");

fn example() -> TestInputs {
    TestInputs::default()
        .file("client.toml", EXAMPLE)
        .file("/etc/quictun/client.crt", "")
        .file("/etc/quictun/client.key", "")
        .file("/etc/quictun/client.psk", "")
}

#[test]
fn the_example_says_what_its_comments_say() {
    let found = lines(&example(), "client --config client.toml");
    let target = |host: &str, port: u16| {
        format!("Target(Tcp {{ family: Any, host: \"{host}\", port: {port} }})")
    };
    let mut base = lines(&TestInputs::default(), &minimal());
    // The example's values are the defaults; values without a default are listed here.
    base.insert("httpd_is_default", "false".to_owned());
    differ(
        &found,
        &base,
        &[
            ("server", "example.net 7500"),
            (
                "certificate",
                "Some(CertificateFiles { cert: \"/etc/quictun/client.crt\", key: \"/etc/quictun/client.key\" })",
            ),
            ("psk_file", "Some(\"/etc/quictun/client.psk\")"),
            (
                "forwards",
                &format!(
                    "Loopback(2222) -> {}; Tcp(0.0.0.0:5432) -> {}; Unix(\"/run/quictun/docker.sock\") -> Target(Unix {{ path: \"/run/docker.sock\" }}); Loopback(1080) -> Proxy",
                    target("127.0.0.1", 22),
                    target("db.internal", 5432),
                ),
            ),
            (
                "reverse",
                "[Reverse { listen: Tcp(127.0.0.1:8000), target: Tcp { family: Any, host: \"127.0.0.1\", port: 80 } }]",
            ),
        ],
        "client.toml",
    );
    assert!(matches!(
        example().native("config check --client client.toml"),
        Ok(Action::Config(ConfigTask::Client(..)))
    ));
}

#[test]
fn the_example_names_every_key() {
    for option in flags::CLIENT
        .flags()
        .map(Flag::spec)
        .filter(|option| !option.key.is_empty())
    {
        let key = option.key.rsplit('.').next().unwrap_or(option.key);
        let named = |line: &str| {
            line.trim_start_matches("# ")
                .starts_with(&format!("{key} = "))
        };
        assert!(EXAMPLE.lines().any(named) || key == "forward", "{key}");
    }
}
