//! The scenarios that are built into the program.

macro_rules! scenario {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../scenarios/", $name, ".toml")),
        )
    };
}

/// Name and TOML text of each built-in scenario.
pub static ALL: &[(&str, &str)] = &[
    scenario!("published-bandwidth"),
    scenario!("published-latency"),
    scenario!("published-quiclab"),
    scenario!("published-eventloop"),
    scenario!("published-bigtcp"),
    scenario!("published-batching"),
    scenario!("wan-matrix"),
    scenario!("latency-under-load"),
    scenario!("handshake"),
    scenario!("head-of-line"),
    scenario!("outage"),
    scenario!("wifi"),
    scenario!("cellular"),
    scenario!("satellite"),
    scenario!("shared-line"),
    scenario!("null"),
    scenario!("capacity"),
    scenario!("crosscheck"),
];

/// Returns the text of the built-in scenario with this name.
pub fn find(name: &str) -> Option<&'static str> {
    ALL.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
}

/// Returns TOML that adds another emulator to `crosscheck`. The caller appends it to that scenario's text.
pub fn other_emulator(command: &str) -> String {
    OTHER_EMULATOR.replace("COMMAND", &toml::Value::from(command).to_string())
}

const OTHER_EMULATOR: &str = include_str!("other_emulator.toml");

#[cfg(test)]
mod tests;
