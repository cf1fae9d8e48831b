//! A detour: packets of this host to some networks go into a TUN device, and the tunnel's own packets bypass it.
//!
//! The host's own routes stay unchanged. `plan` chooses routing tables and rules that the kernel consults before the
//! main table, and `guard` chooses packet filter rules. The filter drops packets that would bypass the tunnel
//! nevertheless: those of a program bound to another device, or those that follow a route of another program or a lost
//! device. Packets with [`MARK`] bypass both. These are the tunnel's own, whose sockets have the mark, and answers on
//! connections that came in from outside.
//!
//! If this process is killed, the device, the rules and the filter stay, and no packet bypasses the tunnel until the
//! next [`Detour`] or [`remove`]. With `--fail-open`, the device disappears with the process and there is no such
//! filter.

mod administrator;
mod error;
mod guard;
mod name_servers;
mod plan;
mod source_check;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, AsRawFd as _};

use quictun_sys::{Firewall, Network, RouteTarget, Tun, accepted_tcp, set_sysctl};
use tracing::warn;

use crate::settings::Routes;
use crate::tun_device::{self, NAME};
use plan::{CHOSEN, HostNetwork, PRIORITIES, REST, RoutePlan};
use source_check::VALID_MARK;

pub use error::DetourError;
pub use plan::MARK;

/// The device and the routes into it, which are removed when this value is dropped.
#[derive(Debug)]
pub struct Detour {
    tun: Tun,
    /// Looked up before the routes exist: the look-up must not go through the tunnel that needs its result.
    server: Vec<SocketAddr>,
    plan: RoutePlan,
    installed: InstalledRoutes,
    notes: Vec<String>,
}

impl Detour {
    /// Creates the device and routes traffic into it. If `names` is set, this includes DNS queries.
    ///
    /// # Errors
    ///
    /// Fails if networks contradict each other, or if a system call fails. The error names a remedy.
    pub fn new(routes: &Routes, names: bool, server: (&str, u16)) -> Result<Self, DetourError> {
        let failed = |error| DetourError::Server(server.0.to_owned(), error);
        let server: Vec<SocketAddr> = server.to_socket_addrs().map_err(failed)?.collect();
        let mut network = Network::open().map_err(DetourError::Device)?;
        let host = HostNetwork {
            has_ipv6: tun_device::has_ipv6(),
            networks: network.networks(NAME).map_err(DetourError::Device)?,
            gateways: network.gateways().map_err(DetourError::Device)?,
            administrator: administrator::find(),
            names,
        };
        let plan = RoutePlan::new(routes, &server, &host)?;
        let was_there = network.has(NAME);
        let tun = tun_device::create(&mut network).map_err(refused)?;
        let mut installed = InstalledRoutes {
            network,
            stays: false,
            valid_mark: false,
        };
        let mut notes = Vec::new();
        installed.let_source_checks_pass(&server, &mut notes)?;
        let accepted = install_filter(&plan, &mut notes)?;
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

    /// Restores the device's addresses, rules and routes, for example after another program has switched the device
    /// off.
    ///
    /// # Errors
    ///
    /// Fails if the device is gone, or if a system call fails.
    pub fn restore(&mut self) -> Result<(), DetourError> {
        // The device must not be one of the same name that another program has created in the meantime.
        Tun::inherit(self.descriptor()).map_err(DetourError::Gone)?;
        tun_device::configure(&mut self.installed.network).map_err(DetourError::Device)?;
        self.installed.add(&self.plan)
    }

    /// Leaves everything in place when this value is dropped, so that no packet bypasses the tunnel. Returns false, and
    /// changes nothing, with `--fail-open`.
    pub fn stay_closed(&mut self) -> bool {
        self.installed.stays = self.plan.closed;
        self.installed.stays
    }

    /// Returns messages for the user, as sentences.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the TUN device of the detour.
    pub fn tun(&self) -> &Tun {
        &self.tun
    }

    /// Returns the device's descriptor.
    pub fn descriptor(&self) -> i32 {
        self.tun.as_fd().as_raw_fd()
    }

    /// Returns the server's addresses.
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
            warn!(target: "quictun", %cause, "cannot remove the TUN device: ip link del quictun0");
        }
    }
}

/// Removes what a killed client has left behind: device, rules, routes and filter. Returns whether there was anything
/// to remove.
///
/// # Errors
///
/// Fails with [`DetourError::Busy`] if a client is running, or if a system call fails.
pub fn remove() -> Result<bool, DetourError> {
    let mut network = Network::open().map_err(DetourError::Device)?;
    let was_there = network.has(NAME);
    // Creating the device shows whether a client is running and whether this process has the necessary rights, even if
    // the old device is gone.
    let tun = tun_device::create(&mut network).map_err(refused)?;
    tun.keep(false).map_err(DetourError::Device)?;
    let mut installed = InstalledRoutes {
        network,
        stays: true,
        valid_mark: false,
    };
    let routes = installed.remove_routes();
    let filter = Firewall::remove(guard::TABLE).map_err(DetourError::Filter)?;
    Ok(was_there || routes || filter)
}

/// The installed tables, rules and filter, which are removed when this value is dropped.
#[derive(Debug)]
struct InstalledRoutes {
    network: Network,
    stays: bool,
    /// The setting was off before and has to be switched off again.
    valid_mark: bool,
}

impl InstalledRoutes {
    /// Makes the kernel's check of source addresses (`rp_filter`) consider marks. Otherwise a strict check drops the
    /// packets that arrive outside the tunnel, those of the server included, because the way to their sources leads into
    /// the device.
    fn let_source_checks_pass(
        &mut self,
        server: &[SocketAddr],
        notes: &mut Vec<String>,
    ) -> Result<(), DetourError> {
        if source_check::considers_marks() {
            return Ok(());
        }
        let Err(cause) = set_sysctl(VALID_MARK, "1") else {
            self.valid_mark = true;
            return Ok(());
        };
        let strict = source_check::strict_devices();
        for address in server.iter().filter(|address| address.is_ipv4()) {
            if let Ok(Some(device)) = self.network.device_towards(address.ip(), MARK)
                && strict.contains(&device)
            {
                return Err(DetourError::SourceCheck { device, cause });
            }
        }
        if !strict.is_empty() {
            notes.push(format!(
                "connections that come in at {} fail, because rp_filter is 1 there and /proc/sys/{VALID_MARK} cannot be set: {cause}",
                strict.join(", ")
            ));
        }
        Ok(())
    }

    /// Adds the entries that are missing. Exceptions come first and rules last, so that no packet takes a wrong path at
    /// any moment.
    fn add(&mut self, plan: &RoutePlan) -> Result<(), DetourError> {
        for table in [CHOSEN, REST] {
            for network in &plan.excepted {
                let added =
                    ok_if_exists(self.network.add_route(table, *network, RouteTarget::Throw));
                added.map_err(|error| DetourError::Route(format!("--exclude {network}"), error))?;
            }
        }
        for (network, table) in &plan.included {
            let added = ok_if_exists(self.network.add_route(
                *table,
                *network,
                RouteTarget::Device(NAME),
            ));
            added.map_err(|error| DetourError::Route(format!("--route {network}"), error))?;
        }
        for rule in &plan.rules {
            let added = ok_if_exists(self.network.add_rule(*rule));
            added.map_err(|error| DetourError::Route("adding a routing rule".to_owned(), error))?;
        }
        Ok(())
    }

    fn remove_routes(&mut self) -> bool {
        let mut any = false;
        for v6 in [false, true] {
            for priority in PRIORITIES {
                match self.network.remove_rules(v6, priority) {
                    Ok(count) => any |= count > 0,
                    // A kernel without IPv6 has no such rules.
                    Err(_) if v6 && !tun_device::has_ipv6() => {}
                    Err(cause) => {
                        warn!(target: "quictun", %cause, priority, "cannot remove a rule for the tunnel's routes: ip rule del priority ...");
                    }
                }
            }
        }
        for table in [CHOSEN, REST] {
            match self.network.clear_table(table) {
                Ok(count) => any |= count > 0,
                Err(cause) => {
                    warn!(target: "quictun", %cause, table, "cannot remove routes into the tunnel: `ip route flush table TABLE`");
                }
            }
        }
        any
    }
}

impl Drop for InstalledRoutes {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        self.remove_routes();
        if let Err(cause) = Firewall::remove(guard::TABLE) {
            warn!(target: "quictun", %cause, "cannot remove the packet filter's table: `nft delete table inet quictun`");
        }
        if self.valid_mark
            && let Err(cause) = set_sysctl(VALID_MARK, "0")
        {
            warn!(target: "quictun", %cause, setting = VALID_MARK, "cannot reset a setting to 0");
        }
    }
}

/// Installs the filter, which replaces one that was left behind. Returns the number of connections that came in
/// from outside before.
fn install_filter(plan: &RoutePlan, notes: &mut Vec<String>) -> Result<usize, DetourError> {
    let accepted = accepted_tcp().unwrap_or_else(|cause| {
        notes.push(format!(
            "TCP connections that came in before may be cut, because they cannot be listed: {cause}"
        ));
        Vec::new()
    });
    match guard::firewall(plan, &accepted).install() {
        Err(cause) if !plan.closed => {
            notes.push(format!(
                "answers on connections that come in from outside go into the tunnel, because there is no packet filter (nf_tables): {cause}"
            ));
            Ok(0)
        }
        Err(cause) => Err(DetourError::Filter(cause)),
        Ok(()) => Ok(accepted.len()),
    }
}

fn refused(error: io::Error) -> DetourError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => DetourError::Rights,
        io::ErrorKind::ResourceBusy => DetourError::Busy,
        _ => DetourError::Device(error),
    }
}

/// Treats an entry that exists already as added.
fn ok_if_exists(added: io::Result<()>) -> io::Result<()> {
    match added {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        added => added,
    }
}
