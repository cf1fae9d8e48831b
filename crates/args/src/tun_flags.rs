//! The flags about TUN devices: `--tun`, `--route`, `--exclude`, `--fail-open`, `--confirm`, `--dns`, `--one-process`;
//! `--tun-fd` of the native client; and `--netstack-fd` and `--server-address`, with which a process for devices starts its client.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use quictun_stackd::settings::{Routes, TunDevice, TunSettings};

use crate::fault::Fault;
use crate::layers::{Layers, parse_bool};
use crate::options::Opt;

/// A day: whoever takes longer does not look.
const CONFIRM_MAX: u64 = 86_400;

// The options that both clients have.

pub(crate) const TUN: Opt = Opt::switch(
    "tun",
    "Carry what this host connects to, through a TUN device; needs CAP_NET_ADMIN",
);

pub(crate) const ROUTE: Opt = Opt::list(
    "route",
    "CIDR",
    "",
    "With --tun, networks that are reached through the tunnel; none: all",
);

pub(crate) const EXCLUDE: Opt = Opt::list(
    "exclude",
    "CIDR",
    "",
    "With --tun, networks that are reached beside it",
);

pub(crate) const FAIL_OPEN: Opt = Opt::switch(
    "fail-open",
    "With --tun, let traffic leave beside the tunnel when the client has been killed",
);

pub(crate) const CONFIRM: Opt = Opt::one(
    "confirm",
    "SECONDS",
    "",
    "With --tun, end and undo all unless `quictun confirm` or Enter comes within this time",
);

pub(crate) const ONE_PROCESS: Opt = Opt::switch(
    "one-process",
    "With a device, keep the network stack in the client's own process",
);

pub(crate) const NETSTACK_FD: Opt = Opt::one(
    "netstack-fd",
    "NUMBER",
    "",
    "Descriptor of a socket to quictun-netstackd, as --tun and `quictun run` make one",
);

pub(crate) const FOR_COMMAND: Opt = Opt::switch(
    "for-command",
    "What is behind the device is a command that has ended when the client drains, as `quictun run` does",
)
.hidden();

pub(crate) const SERVER_ADDRESS: Opt = Opt::list(
    "server-address",
    "ADDR",
    "",
    "Addresses of the server, which is not looked up then",
);

pub(crate) const DNS: Opt = Opt::one(
    "dns",
    "ADDR",
    "",
    "The name server that is asked in place of any other by what goes through a TUN device",
);

/// What a client does with a TUN device, if anything.
pub(crate) fn settings(layers: &Layers<'_>) -> Result<Option<TunSettings>, Fault> {
    let dns = layers.optional("dns", |text| {
        text.parse::<IpAddr>()
            .map_err(|_| format!("{text:?} is no IP address"))
    })?;
    let routes = Routes {
        include: layers.all("route", network)?,
        exclude: layers.all("exclude", network)?,
        fail_open: layers.switch("fail-open")?,
    };
    let one_process = layers.switch("one-process")?;
    let for_command = layers.switch("for-command")?;
    if layers.is_given("netstack-fd") {
        // Whoever gave it has made the device, and obeys the other flags.
        let device = TunDevice::Apart(layers.number("netstack-fd", 0..=i32::MAX)?);
        return Ok(Some(TunSettings {
            device,
            dns,
            one_process,
            confirm: None,
            for_command,
        }));
    }
    let own = layers.value("tun", |text| {
        parse_bool(text).ok_or_else(|| format!("{text:?} is neither true nor false"))
    })?;
    let has_descriptor = layers.options().any(|option| option.name == "tun-fd");
    let given = has_descriptor && layers.is_given("tun-fd");
    if own && given {
        return Err(layers.fault("tun-fd", "contradicts tun: keep one of them"));
    }
    let confirm = layers.optional("confirm", |text| match text.parse() {
        Ok(seconds @ 1..=CONFIRM_MAX) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!(
            "{text:?} is no number of seconds from 1 to {CONFIRM_MAX}"
        )),
    })?;
    if own {
        let device = TunDevice::Own(routes);
        return Ok(Some(TunSettings {
            device,
            dns,
            one_process,
            confirm,
            for_command,
        }));
    }
    if given {
        let device = TunDevice::Inherited(layers.number("tun-fd", 0..=i32::MAX)?);
        return Ok(Some(TunSettings {
            device,
            dns,
            one_process,
            confirm: None,
            for_command,
        }));
    }
    for name in ["route", "exclude", "fail-open", "confirm", "for-command"] {
        // A switch that is off asks for nothing.
        let is_switch = matches!(name, "fail-open" | "for-command");
        let is_off = is_switch && !layers.switch(name)?;
        if layers.is_given(name) && !is_off {
            return Err(layers.fault(name, "leads nowhere without a device: add tun"));
        }
    }
    Ok(None)
}

/// The server's addresses, where it is not to be looked up.
pub(crate) fn server_addresses(layers: &Layers<'_>) -> Result<Vec<IpAddr>, Fault> {
    layers.all("server-address", |text| {
        text.parse::<IpAddr>()
            .map_err(|_| format!("{text:?} is no IP address"))
    })
}

/// Parses `192.0.2.0/24`, `2001:db8::/32`, or an address, which stands for itself alone.
fn network(text: &str) -> Result<IpNet, String> {
    let malformed = || {
        format!(
            "{text:?} is not a network: write ADDRESS/BITS, as in 192.0.2.0/24 or 2001:db8::/32"
        )
    };
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    // IpNet's own parser also takes octets like 010, which some programs read as octal.
    let address: IpAddr = address.parse().map_err(|_| malformed())?;
    let Some(length) = length else {
        return Ok(address.into());
    };
    let length = length.parse().map_err(|_| malformed())?;
    let network = IpNet::new(address, length).map_err(|_| malformed())?;
    let meant = network.trunc();
    if network != meant {
        // The user probably meant another network.
        return Err(format!(
            "{text:?} has bits behind its length: did you mean {meant}?"
        ));
    }
    Ok(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_written() {
        for (text, written) in [
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("2001:db8::1", "2001:db8::1/128"),
            ("128.0.0.0/1", "128.0.0.0/1"),
        ] {
            assert_eq!(
                network(text).map(|it| it.to_string()),
                Ok(written.to_owned())
            );
        }
    }

    #[test]
    fn a_malformed_network_is_refused_with_an_example_and_host_bits_with_the_network_meant() {
        for text in [
            "",
            "/",
            "192.0.2.0/33",
            "::/129",
            "192.0.2/24",
            "010.0.2.0/24",
            "a/8",
            "::/-1",
            "1.2.3.4/",
        ] {
            let refused = network(text).expect_err(text);
            assert!(
                refused.ends_with("as in 192.0.2.0/24 or 2001:db8::/32"),
                "{refused}"
            );
        }
        for (text, meant) in [
            ("192.0.2.7/24", "192.0.2.0/24"),
            ("1.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::1/64", "2001:db8::/64"),
        ] {
            let refused = network(text).expect_err(text);
            assert!(
                refused.ends_with(&format!("did you mean {meant}?")),
                "{refused}"
            );
        }
    }
}
