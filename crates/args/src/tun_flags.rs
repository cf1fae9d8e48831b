//! The flags for TUN devices: `--tun`, `--route`, `--exclude`, `--fail-open`, `--confirm`, `--dns`, `--one-process`,
//! and `--tun-fd` of the native client. A process for devices starts its client with `--netstack-fd` and
//! `--server-address`.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use quictun_stackd::settings::{Routes, TunDevice, TunSettings};

use crate::fault::Fault;
use crate::layers::Layers;
use crate::options;
use crate::options::{Flag, InvalidValue, Many, Maybe, Switch};
use crate::values::{address, number, switch};

/// Longest time for `--confirm`, seconds: a day. A user who needs longer is not watching.
const CONFIRM_MAX: u64 = 86_400;

options! {
    pub(crate) TUN: Switch = "tun" "BOOL", by switch, key "tun";
        "Route this host's connections through the tunnel, with a TUN device; needs CAP_NET_ADMIN"
    pub(crate) ROUTE: Many<IpNet> = "route" "CIDR", by network, key "route";
        "With --tun: networks to reach through the tunnel; unset: all"
    pub(crate) EXCLUDE: Many<IpNet> = "exclude" "CIDR", by network, key "exclude";
        "With --tun: networks to reach outside the tunnel"
    pub(crate) FAIL_OPEN: Switch = "fail-open" "BOOL", by switch, key "fail_open";
        "With --tun: let traffic bypass the tunnel if the client is killed"
    pub(crate) CONFIRM: Maybe<Duration> = "confirm" "SECONDS", by seconds;
        "With --tun: exit and undo all changes unless `quictun confirm` or Enter comes within this time"
    pub(crate) TUN_FD: Maybe<i32> = "tun-fd" "NUMBER", by |text| number(text, 0..=i32::MAX);
        "Inherited descriptor of a TUN device to use, as `quictun run` passes it"
    pub(crate) ONE_PROCESS: Switch = "one-process" "BOOL", by switch;
        "With a TUN device: run the network stack in the client's own process"
    pub(crate) NETSTACK_FD: Maybe<i32> = "netstack-fd" "NUMBER", by |text| number(text, 0..=i32::MAX);
        "Inherited descriptor of a socket to quictun-netstackd, as --tun and `quictun run` pass it"
    pub(crate) FOR_COMMAND: Switch = "for-command" "BOOL", by switch, hidden true;
        "The device serves one command, which has ended before the client drains, as with `quictun run`"
    pub(crate) SERVER_ADDRESS: Many<IpAddr> = "server-address" "ADDR", by address;
        "Addresses of the server; replaces the name look-up"
    pub(crate) DNS: Maybe<IpAddr> = "dns" "ADDR", by address, key "dns";
        "Name server for all DNS queries that enter a TUN device, whichever server they are sent to"
}

/// Reads the client's settings for a TUN device, if it uses one.
pub(crate) fn settings(layers: &Layers<'_>) -> Result<Option<TunSettings>, Fault> {
    let dns = layers.get(&DNS)?;
    let routes = Routes {
        include: layers.get(&ROUTE)?,
        exclude: layers.get(&EXCLUDE)?,
        fail_open: layers.get(&FAIL_OPEN)?,
    };
    let one_process = layers.get(&ONE_PROCESS)?;
    let for_command = layers.get(&FOR_COMMAND)?;
    let settings = |device, confirm| {
        Ok(Some(TunSettings {
            device,
            dns,
            one_process,
            confirm,
            for_command,
        }))
    };
    if let Some(descriptor) = layers.get(&NETSTACK_FD)? {
        // The process that passed the descriptor has made the device and applies the other flags.
        return settings(TunDevice::Apart(descriptor), None);
    }
    let own = layers.get(&TUN)?;
    let inherited = layers.get(&TUN_FD)?;
    if own && inherited.is_some() {
        return Err(layers.fault(&TUN_FD, "contradicts tun: keep one of them"));
    }
    let confirm = layers.get(&CONFIRM)?;
    if own {
        return settings(TunDevice::Own(routes), confirm);
    }
    if let Some(descriptor) = inherited {
        return settings(TunDevice::Inherited(descriptor), None);
    }
    let useless: [(&dyn Flag, bool); 5] = [
        (&ROUTE, layers.is_given(&ROUTE)),
        (&EXCLUDE, layers.is_given(&EXCLUDE)),
        (&FAIL_OPEN, routes.fail_open),
        (&CONFIRM, layers.is_given(&CONFIRM)),
        (&FOR_COMMAND, for_command),
    ];
    match useless.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(layers.fault(option, "leads nowhere without a device: add tun")),
        None => Ok(None),
    }
}

fn seconds(text: &str) -> Result<Duration, InvalidValue> {
    match text.parse() {
        Ok(seconds @ 1..=CONFIRM_MAX) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{text:?} is not a number of seconds from 1 to {CONFIRM_MAX}").into()),
    }
}

/// Parses `192.0.2.0/24`, `2001:db8::/32`, or an address, which stands for a network of this address only.
fn network(text: &str) -> Result<IpNet, InvalidValue> {
    let malformed = || {
        format!(
            "{text:?} is not a network: write ADDRESS/BITS, as in 192.0.2.0/24 or 2001:db8::/32"
        )
    };
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    // IpNet's own parser also accepts octets like 010, which some programs read as octal.
    let address: IpAddr = address.parse().map_err(|_| malformed())?;
    let Some(length) = length else {
        return Ok(address.into());
    };
    let length = length.parse().map_err(|_| malformed())?;
    let network = IpNet::new(address, length).map_err(|_| malformed())?;
    let meant = network.trunc();
    if network != meant {
        // The user probably meant another network.
        Err(format!(
            "{text:?} has bits set behind its prefix: did you mean {meant}?"
        ))?;
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
            assert_eq!(network(text).expect(text).to_string(), written);
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
            let InvalidValue(refused) = network(text).expect_err(text);
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
            let InvalidValue(refused) = network(text).expect_err(text);
            assert!(
                refused.ends_with(&format!("did you mean {meant}?")),
                "{refused}"
            );
        }
    }
}
