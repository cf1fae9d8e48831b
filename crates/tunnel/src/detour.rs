//! A detour: what this host sends to some networks goes into a TUN device, and what carries that on does not.
//!
//! Nothing of the host's own routes is changed. Two tables of ours, asked before the main one, hold them: the first
//! the networks that were chosen, the second what is wanted of whole families, asked only where the main table knows
//! nothing nearer than its default route. Excluded networks, and the server's addresses, are in both as exceptions:
//! for them the host's routes hold, whatever these are at the time.
//!
//! The device takes its routes with it however this process ends. Rules and exceptions stay behind where it is killed;
//! they lead nowhere, and the next [`Detour`] removes them.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, AsRawFd as _};

use quictun_sys::{Cidr, Network, Rule, Tun, Way};
use tracing::{info, warn};

use crate::settings::{HostPort, Routes};
use crate::tun_device::{self, NAME};

/// Table and rule of the networks that were chosen: `qt` in ASCII. Systems number their own from 253.
const CHOSEN: u32 = 0x7174;

/// Rule that asks the main table for all but its default route.
const NEARER: u32 = CHOSEN + 1;

/// Table and rule of whole families.
const REST: u32 = CHOSEN + 2;

/// The device, and the routes into it, until this is dropped.
#[derive(Debug)]
pub struct Detour {
    tun: Tun,
    /// The server's, looked up before: its name is not asked through the tunnel that it would take to ask.
    server: Vec<SocketAddr>,
    plan: Plan,
    routes: Installed,
}

/// Why traffic is not led into the tunnel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetourError {
    /// The server's addresses have to be known first.
    #[error("the server {0:?} cannot be looked up, and later this would take the tunnel: {1}")]
    Server(String, #[source] io::Error),
    /// The tunnel would be led through itself.
    #[error("--route {0} is the server itself: take it away")]
    RouteToServer(Cidr),
    /// Something on this host has precedence over exceptions of ours.
    #[error(
        "what is for the server {0} would go through the tunnel itself: another rule of this host decides that (ip rule)"
    )]
    Swallowed(IpAddr),
    /// Both at once.
    #[error("{0} is to be led into the tunnel and excluded: keep one of the two")]
    Contradiction(Cidr),
    /// No device.
    #[error(
        "a TUN device quictun0: {0}; this takes CAP_NET_ADMIN and /dev/net/tun, and no other client that has it"
    )]
    Device(#[source] io::Error),
    /// It was there.
    #[error("the TUN device quictun0 is gone ({0}): somebody has deleted it; start this again")]
    Gone(#[source] io::Error),
    /// No routes.
    #[error("{0}: {1}")]
    Route(String, #[source] io::Error),
}

impl Detour {
    /// Makes the device, and leads traffic into it.
    /// # Errors
    ///
    /// What makes no sense, and the system's refusals, with the remedy.
    pub fn new(routes: &Routes, server: &HostPort) -> Result<Self, DetourError> {
        let failed = |error| DetourError::Server(server.host.clone(), error);
        let server: Vec<SocketAddr> = (server.host.as_str(), server.port)
            .to_socket_addrs()
            .map_err(failed)?
            .collect();
        let plan = Plan::new(routes, &server, tun_device::has_ipv6())?;
        let mut network = Network::open().map_err(DetourError::Device)?;
        let tun = tun_device::create(&mut network).map_err(DetourError::Device)?;
        let mut installed = Installed { network };
        // What a client that was killed has left behind.
        installed.remove_all();
        installed.add(&plan)?;
        for address in &server {
            let towards = installed.network.device_towards(address.ip());
            if towards.is_ok_and(|device| device.as_deref() == Some(NAME)) {
                return Err(DetourError::Swallowed(address.ip()));
            }
        }
        for (network, _) in &plan.included {
            info!(target: "quictun", network = %network, device = NAME, "what is for this network goes through the tunnel");
        }
        Ok(Self {
            tun,
            server,
            plan,
            routes: installed,
        })
    }

    /// Puts back what is missing of the device's addresses and of the routes, as after somebody has switched it off.
    ///
    /// # Errors
    ///
    /// Where the device is gone; the system's refusals.
    pub fn restore(&mut self) -> Result<(), DetourError> {
        // Not one of that name that somebody else may have made meanwhile.
        Tun::inherit(self.descriptor()).map_err(DetourError::Gone)?;
        tun_device::configure(&mut self.routes.network).map_err(DetourError::Device)?;
        self.routes.add(&self.plan)
    }

    /// The device.
    pub fn tun(&self) -> &Tun {
        &self.tun
    }

    /// The device's descriptor.
    pub(crate) fn descriptor(&self) -> i32 {
        self.tun.as_fd().as_raw_fd()
    }

    /// The server's addresses.
    pub fn server(&self) -> &[SocketAddr] {
        &self.server
    }
}

/// What is to be in the tables.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// Networks, and the table that leads them into the device.
    included: Vec<(Cidr, u32)>,
    excepted: Vec<Cidr>,
    rules: Vec<Rule>,
}

impl Plan {
    fn new(routes: &Routes, server: &[SocketAddr], has_ipv6: bool) -> Result<Self, DetourError> {
        let mut included = routes.include.clone();
        if included.is_empty() {
            included.push(Cidr::ALL_V4);
            included.extend(has_ipv6.then_some(Cidr::ALL_V6));
        }
        included.sort_unstable();
        included.dedup();
        let servers: Vec<_> = server.iter().map(|at| Cidr::from(at.ip())).collect();
        for network in &included {
            if servers.contains(network) {
                return Err(DetourError::RouteToServer(*network));
            }
            if routes.exclude.contains(network) {
                return Err(DetourError::Contradiction(*network));
            }
        }
        let mut excepted = [routes.exclude.clone(), servers].concat();
        excepted.sort_unstable();
        excepted.dedup();
        excepted.retain(|network| has_ipv6 || !network.is_v6());
        let table = |network: &Cidr| if network.is_all() { REST } else { CHOSEN };
        let included: Vec<_> = included.iter().map(|it| (*it, table(it))).collect();
        let mut rules = Vec::new();
        for v6 in [false, true] {
            let wants = |wanted| {
                let mut all = included.iter();
                all.any(|(network, table)| network.is_v6() == v6 && *table == wanted)
            };
            if wants(CHOSEN) {
                rules.push(rule(v6, CHOSEN, Some(CHOSEN)));
            }
            if wants(REST) {
                rules.push(rule(v6, NEARER, None));
                rules.push(rule(v6, REST, Some(REST)));
            }
        }
        Ok(Self {
            included,
            excepted,
            rules,
        })
    }
}

/// Our tables and rules, which are removed when this is dropped.
#[derive(Debug)]
struct Installed {
    network: Network,
}

impl Installed {
    /// What is not there yet. Exceptions first, rules last: at no moment does anything go where it should not.
    fn add(&mut self, plan: &Plan) -> Result<(), DetourError> {
        for table in [CHOSEN, REST] {
            for network in &plan.excepted {
                let added = there(self.network.add_route(table, *network, Way::Elsewhere));
                added.map_err(|error| DetourError::Route(format!("--exclude {network}"), error))?;
            }
        }
        for (network, table) in &plan.included {
            let added = there(self.network.add_route(*table, *network, Way::Device(NAME)));
            added.map_err(|error| DetourError::Route(format!("--route {network}"), error))?;
        }
        for rule in &plan.rules {
            let added = there(self.network.add_rule(*rule));
            added.map_err(|error| DetourError::Route("a rule for our routes".to_owned(), error))?;
        }
        Ok(())
    }

    fn remove_all(&mut self) {
        for v6 in [false, true] {
            for (priority, table) in [(CHOSEN, Some(CHOSEN)), (NEARER, None), (REST, Some(REST))] {
                match self.network.remove_rule(rule(v6, priority, table)) {
                    Ok(_) => {}
                    // There is none where the kernel knows no IPv6.
                    Err(_) if v6 && !tun_device::has_ipv6() => {}
                    Err(cause) => {
                        warn!(target: "quictun", %cause, priority, "a rule for routes into the tunnel stays: ip rule del priority ...");
                    }
                }
            }
        }
        for table in [CHOSEN, REST] {
            if let Err(cause) = self.network.clear_table(table) {
                warn!(target: "quictun", %cause, table, "routes into the tunnel stay: ip route flush table ...");
            }
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        self.remove_all();
    }
}

/// Added, now or before.
fn there(added: io::Result<()>) -> io::Result<()> {
    match added {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        added => added,
    }
}

fn rule(v6: bool, priority: u32, table: Option<u32>) -> Rule {
    Rule {
        v6,
        priority,
        table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(
        include: &[&str],
        exclude: &[&str],
        server: &str,
        has_ipv6: bool,
    ) -> Result<Plan, String> {
        let all = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| text.parse().expect("a network"))
                .collect()
        };
        let routes = Routes {
            include: all(include),
            exclude: all(exclude),
        };
        let server = server.parse().expect("an address");
        Plan::new(&routes, &[server], has_ipv6).map_err(|error| error.to_string())
    }

    #[test]
    fn everything_is_led_away_but_what_is_near_and_the_server() {
        let plan = plan(&[], &[], "192.0.2.1:7500", true).expect("a plan");
        assert_eq!(plan.included, [(Cidr::ALL_V4, REST), (Cidr::ALL_V6, REST)]);
        assert_eq!(plan.excepted, ["192.0.2.1".parse().expect("a network")]);
        let asked: Vec<_> = plan
            .rules
            .iter()
            .map(|rule| (rule.v6, rule.priority, rule.table))
            .collect();
        let rest = Some(REST);
        assert_eq!(
            asked,
            [
                (false, NEARER, None),
                (false, REST, rest),
                (true, NEARER, None),
                (true, REST, rest)
            ]
        );
        let without =
            tests::plan(&[], &["2001:db8::/32"], "192.0.2.1:7500", false).expect("a plan");
        assert_eq!(without.included, [(Cidr::ALL_V4, REST)]);
        assert!(without.rules.iter().all(|rule| !rule.v6));
        assert!(without.excepted.iter().all(|network| !network.is_v6()));
    }

    #[test]
    fn chosen_networks_come_before_the_main_table() {
        let plan = plan(
            &["10.0.0.0/8", "10.0.0.0/8"],
            &["10.1.0.0/16"],
            "10.2.0.1:7500",
            true,
        )
        .expect("a plan");
        assert_eq!(plan.included.len(), 1);
        assert_eq!(plan.rules, [rule(false, CHOSEN, Some(CHOSEN))]);
        assert_eq!(plan.excepted.len(), 2);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let refused = plan(&["192.0.2.1"], &[], "192.0.2.1:7500", true).expect_err("the server");
        assert!(
            refused.contains("--route 192.0.2.1/32 is the server itself"),
            "{refused}"
        );
        let refused =
            plan(&["10.0.0.0/8"], &["10.0.0.0/8"], "192.0.2.1:7500", true).expect_err("both");
        assert!(
            refused.contains("10.0.0.0/8 is to be led into the tunnel and excluded"),
            "{refused}"
        );
    }
}
