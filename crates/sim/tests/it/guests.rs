//! Programs that tests run on hosts: a QUIC client or server that a test drives stream by stream, and a server with the
//! hazards of the original.

mod bare;
mod endpoint;
mod original;

use quictun_sim::{HostId, Network};

use bare::BarePeer;
pub(crate) use original::{OriginalOptions, OriginalServer};

/// Adds guests to a network and gives access to them.
pub(crate) trait Guests {
    /// Adds a QUIC client without a tunnel, which connects to `server` at once.
    fn add_bare(&mut self, name: &str, protocols: &[&[u8]], server: HostId) -> HostId;

    /// Adds a QUIC server without a tunnel.
    fn add_bare_server(&mut self, name: &str) -> HostId;

    /// Returns the bare QUIC client or server that runs on a host.
    fn bare(&mut self, id: HostId) -> &mut BarePeer;

    /// Adds a server that behaves as the original does.
    fn add_original(&mut self, name: &str, options: OriginalOptions) -> HostId;

    /// Returns the original server that runs on a host.
    fn original(&mut self, id: HostId) -> &mut OriginalServer;
}

impl Guests for Network {
    fn add_bare(&mut self, name: &str, protocols: &[&[u8]], server: HostId) -> HostId {
        let bare = BarePeer::client(self, protocols, server);
        self.add_guest(name, bare)
    }

    fn add_bare_server(&mut self, name: &str) -> HostId {
        let bare = BarePeer::server(self.seed().value());
        self.add_guest(name, bare)
    }

    fn bare(&mut self, id: HostId) -> &mut BarePeer {
        self.guest(id)
    }

    fn add_original(&mut self, name: &str, options: OriginalOptions) -> HostId {
        let original = OriginalServer::new(options, self.seed().value());
        self.add_guest(name, original)
    }

    fn original(&mut self, id: HostId) -> &mut OriginalServer {
        self.guest(id)
    }
}
