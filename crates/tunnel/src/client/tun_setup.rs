//! The device of a client, and the routes that lead the host's packets into it.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use quictun_control::settings::Phrases;
use quictun_stackd::detour::Detour;
use quictun_stackd::netstackd::{self, NetstackProcess};
use quictun_stackd::own_stack::OwnStack;
use quictun_stackd::settings::TunDevice;
use quictun_sys::Tun;
use tracing::{info, warn};

use crate::failure::Failure;
use crate::settings::ClientSettings;
use crate::tun_port::{TunPort, TunStack};

/// The origin of the packets that are carried, and the name server that is asked.
#[derive(Debug)]
pub(super) struct TunSetup {
    pub(super) source: TunSource,
    pub(super) dns: Option<IpAddr>,
    pub(super) for_command: bool,
}

#[derive(Debug)]
pub(super) enum TunSource {
    Device(Tun),
    /// Another process has the device; it is at the other end of this socket.
    Apart(OwnedFd),
}

/// Opens the device, if the client has one, and makes the detour of a device for the whole host.
pub(super) fn open(settings: &ClientSettings) -> Result<(Option<TunSetup>, Option<Detour>)> {
    let Some(tun) = &settings.tun else {
        return Ok((None, None));
    };
    let device = |number| Tun::inherit(number).context("cannot use the inherited TUN device");
    let (source, detour) = match &tun.device {
        TunDevice::Apart(number) => {
            let socket = quictun_sys::inherit_socket(*number)
                .context("cannot use the inherited socket to the network stack")?;
            netstackd::end_with_parent(&socket)?;
            (TunSource::Apart(socket), None)
        }
        TunDevice::Inherited(number) => (TunSource::Device(device(*number)?), None),
        TunDevice::Own(routes) => {
            let server = settings
                .server
                .at()
                .context("a client with a device has exactly one server")?;
            let server = (server.host.as_str(), server.port);
            let detour = Detour::new(routes, tun.dns.is_some(), server)?;
            for note in detour.notes() {
                info!(target: "quictun", note, "the device for this host");
            }
            (
                TunSource::Device(device(detour.descriptor())?),
                Some(detour),
            )
        }
    };
    let setup = TunSetup {
        source,
        dns: tun.dns,
        for_command: tun.for_command,
    };
    Ok((Some(setup), detour))
}

impl TunSetup {
    pub(super) fn is_one_process(&self) -> bool {
        matches!(self.source, TunSource::Device(_))
    }

    pub(super) fn build(self, phrases: Phrases) -> Result<TunPort> {
        let stack = match self.source {
            TunSource::Device(tun) => TunStack::Own(OwnStack::new(tun)?),
            TunSource::Apart(socket) => {
                let remote = NetstackProcess::new(socket);
                TunStack::Remote(remote.context("cannot set up the channel to netstackd")?)
            }
        };
        Ok(TunPort::new(stack, self.dns, self.for_command, phrases)?)
    }
}

/// Leaves the device's routing rules and packet filter in place if the tunnel has failed by itself.
pub(super) fn keep_closed(detour: Option<&mut Detour>, outcome: &Result<(), Failure>) {
    let failed = !matches!(outcome, Ok(()) | Err(Failure::Interrupted));
    if let Some(detour) = detour.filter(|_| failed)
        && detour.stay_closed()
    {
        warn!(target: "quictun", "the tunnel has failed, and no packet bypasses it: start it again, or let traffic out with `quictun down`");
    }
}
