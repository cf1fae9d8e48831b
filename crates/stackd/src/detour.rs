//! A detour: what this host sends to some networks goes into a TUN device, and what carries that on does not.
//!
//! The host's own routes stay as they are. [`plan`] decides on tables and rules that the kernel asks before the main
//! table, and [`guard`] on packet filter rules. The filter drops what would leave beside the tunnel all the same: a
//! program bound to another device, a route that another program added, a device that is gone. Packets with [`MARK`] go around
//! both: the tunnel's own, whose sockets have it, and answers on connections that came in from outside.
//!
//! Where this process is killed, the device, rules and filter stay and nothing leaves beside the tunnel, until the next
//! [`Detour`] or [`remove`] ends that. With `--fail-open` the device goes with the process and there is no such filter.

mod administrator;
mod error;
mod guard;
mod name_servers;
mod plan;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, AsRawFd as _};

use quictun_sys::{Firewall, Network, Tun, Way, accepted_tcp, set_sysctl};
use tracing::warn;

use crate::settings::Routes;
use crate::tun_device::{self, NAME};
use plan::{CHOSEN, Host, PRIORITIES, Plan, REST};

pub use error::DetourError;
pub use plan::MARK;

/// Where the kernel is told to look at marks when it checks where a packet came from (`rp_filter`).
const VALID_MARK: &str = "net/ipv4/conf/all/src_valid_mark";

/// The device, and the routes into it, until this is dropped.
#[derive(Debug)]
pub struct Detour {
    tun: Tun,
    /// Looked up before there were routes: its name is not asked through the tunnel that it would take to ask.
    server: Vec<SocketAddr>,
    plan: Plan,
    installed: Installed,
    notes: Vec<String>,
}

impl Detour {
    /// Makes the device, and leads traffic into it; questions to name servers, too, where `names`.
    ///
    /// # Errors
    ///
    /// Networks that contradict each other, and the system's refusals, with the remedy.
    pub fn new(routes: &Routes, names: bool, server: (&str, u16)) -> Result<Self, DetourError> {
        let failed = |error| DetourError::Server(server.0.to_owned(), error);
        let server: Vec<SocketAddr> = server.to_socket_addrs().map_err(failed)?.collect();
        let mut network = Network::open().map_err(DetourError::Device)?;
        let host = Host {
            has_ipv6: tun_device::has_ipv6(),
            networks: network.networks(NAME).map_err(DetourError::Device)?,
            gateways: network.gateways().map_err(DetourError::Device)?,
            administrator: administrator::find(),
            names,
        };
        let plan = Plan::new(routes, &server, &host)?;
        let was_there = network.has(NAME);
        let tun = tun_device::create(&mut network).map_err(refused)?;
        let mut installed = Installed {
            network,
            stays: false,
            valid_mark: false,
        };
        let mut notes = Vec::new();
        let accepted = installed.guard(&plan)?;
        let left = installed.remove_routes();
        if left || was_there {
            notes.push("removed the rules and routes of a client that was killed".to_owned());
        }
        installed.add(&plan)?;
        for address in &server {
            let towards = installed.network.device_towards(address.ip(), MARK);
            if towards.is_ok_and(|device| device.as_deref() == Some(NAME)) {
                return Err(DetourError::Swallowed(address.ip()));
            }
        }
        if plan.closed {
            tun.keep(true).map_err(DetourError::Device)?;
        }
        notes.extend(plan.notes(accepted));
        notes.extend(name_servers::notes(&plan));
        Ok(Self {
            tun,
            server,
            plan,
            installed,
            notes,
        })
    }

    /// Puts back the device's addresses, rules and routes, as after another program has switched it off.
    ///
    /// # Errors
    ///
    /// Where the device is gone; the system's refusals.
    pub fn restore(&mut self) -> Result<(), DetourError> {
        // Not one of that name that another program may have made meanwhile.
        Tun::inherit(self.descriptor()).map_err(DetourError::Gone)?;
        tun_device::configure(&mut self.installed.network).map_err(DetourError::Device)?;
        self.installed.add(&self.plan)
    }

    /// Leaves everything as it is when this is dropped, so that nothing leaves beside the tunnel; whether that holds:
    /// not with `--fail-open`.
    pub fn stay_closed(&mut self) -> bool {
        self.installed.stays = self.plan.closed;
        self.installed.stays
    }

    /// What the user should know, in sentences.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The device.
    pub fn tun(&self) -> &Tun {
        &self.tun
    }

    /// The device's descriptor.
    pub fn descriptor(&self) -> i32 {
        self.tun.as_fd().as_raw_fd()
    }

    /// The server's addresses.
    pub fn server(&self) -> &[SocketAddr] {
        &self.server
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        self.installed.stays |= self.plan.closed && std::thread::panicking();
        if !self.installed.stays
            && let Err(cause) = self.tun.keep(false)
        {
            warn!(target: "quictun", %cause, "the TUN device stays: ip link del quictun0");
        }
    }
}

/// Removes what a client that was killed has left behind: device, rules, routes and filter; whether there was anything.
///
/// # Errors
///
/// [`DetourError::Busy`] where a client is running; the system's refusals.
pub fn remove() -> Result<bool, DetourError> {
    let mut network = Network::open().map_err(DetourError::Device)?;
    let was_there = network.has(NAME);
    // Even where the device is gone, this finds out whether a client is running, and whether we may do all this.
    let tun = tun_device::create(&mut network).map_err(refused)?;
    tun.keep(false).map_err(DetourError::Device)?;
    let mut installed = Installed {
        network,
        stays: true,
        valid_mark: false,
    };
    let routes = installed.remove_routes();
    let filter = Firewall::remove(guard::TABLE).map_err(DetourError::Filter)?;
    Ok(was_there || routes || filter)
}

/// Our tables, rules and filter, which are removed when this is dropped.
#[derive(Debug)]
struct Installed {
    network: Network,
    stays: bool,
    /// The setting was off before.
    valid_mark: bool,
}

impl Installed {
    /// Installs the filter in place of one that was left behind. Returns how many connections came in from outside before.
    fn guard(&mut self, plan: &Plan) -> Result<usize, DetourError> {
        let was = std::fs::read_to_string(format!("/proc/sys/{VALID_MARK}"));
        if was.is_ok_and(|text| text.trim() == "0") {
            match set_sysctl(VALID_MARK, "1") {
                Ok(()) => self.valid_mark = true,
                Err(cause) => {
                    warn!(target: "quictun", %cause, setting = VALID_MARK, "connections from outside may not work while rp_filter is 1");
                }
            }
        }
        let accepted = accepted_tcp().unwrap_or_else(|cause| {
            warn!(target: "quictun", %cause, "connections that came in before may be cut");
            Vec::new()
        });
        match guard::firewall(plan, &accepted).install() {
            Err(cause) if !plan.closed => {
                warn!(target: "quictun", %cause, "without nf_tables, answers on connections that come in from outside go into the tunnel");
                Ok(0)
            }
            Err(cause) => Err(DetourError::Filter(cause)),
            Ok(()) => Ok(accepted.len()),
        }
    }

    /// Adds what is not there yet. Exceptions come first and rules last: at no moment does anything go where it should not.
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

    fn remove_routes(&mut self) -> bool {
        let mut any = false;
        for v6 in [false, true] {
            for priority in PRIORITIES {
                match self.network.remove_rules(v6, priority) {
                    Ok(count) => any |= count > 0,
                    // There is none where the kernel knows no IPv6.
                    Err(_) if v6 && !tun_device::has_ipv6() => {}
                    Err(cause) => {
                        warn!(target: "quictun", %cause, priority, "a rule for routes into the tunnel stays: ip rule del priority ...");
                    }
                }
            }
        }
        for table in [CHOSEN, REST] {
            match self.network.clear_table(table) {
                Ok(count) => any |= count > 0,
                Err(cause) => {
                    warn!(target: "quictun", %cause, table, "routes into the tunnel stay: ip route flush table ...");
                }
            }
        }
        any
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        self.remove_routes();
        if let Err(cause) = Firewall::remove(guard::TABLE) {
            warn!(target: "quictun", %cause, "the packet filter's table stays: nft delete table inet quictun");
        }
        if self.valid_mark
            && let Err(cause) = set_sysctl(VALID_MARK, "0")
        {
            warn!(target: "quictun", %cause, setting = VALID_MARK, "a setting stays at 1");
        }
    }
}

fn refused(error: io::Error) -> DetourError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => DetourError::Rights,
        io::ErrorKind::ResourceBusy => DetourError::Busy,
        _ => DetourError::Device(error),
    }
}

/// Takes an entry that was there already as added.
fn there(added: io::Result<()>) -> io::Result<()> {
    match added {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        added => added,
    }
}
