//! The evidence of a test: its transcript and its packets, in files if the environment names a directory for them.

mod capture;
mod pcapng;
mod secrets;

use std::sync::Arc;
use std::time::Duration;

use quictun_engine::{ClientRole, EngineConfig};
use quictun_link::Fate;

use crate::network::Network;
use crate::packet::IpPacket;
use crate::seed::Seed;
use capture::Capture;
use secrets::Secrets;

/// The secrets of a run's clients and, if they are wanted, its packets.
#[derive(Debug)]
pub(crate) struct Evidence {
    secrets: Arc<Secrets>,
    capture: Option<Capture>,
}

impl Evidence {
    pub(crate) fn of(seed: &Seed) -> Self {
        Self {
            secrets: Arc::default(),
            capture: seed.evidence().map(|_| Capture::default()),
        }
    }

    pub(crate) fn log_keys(
        &self,
        mut config: EngineConfig<ClientRole>,
    ) -> EngineConfig<ClientRole> {
        for server in &mut config.role.servers {
            let mut crypto = rustls::ClientConfig::clone(&server.crypto);
            crypto.key_log = self.secrets.clone();
            server.crypto = Arc::new(crypto);
        }
        config
    }

    /// Records a packet that enters link number `link` at time `at` after the start.
    pub(crate) fn add(&mut self, link: usize, at: Duration, packet: &IpPacket, fate: Fate) {
        if let Some(capture) = &mut self.capture {
            let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
            capture.add(link, nanos, packet, fate);
        }
    }
}

impl Network {
    /// Records every packet from now on, for [`Network::pcapng`].
    pub fn record(&mut self) {
        self.evidence.capture.get_or_insert_default();
    }

    /// Returns the recorded packets as a pcapng file that Wireshark shows decrypted. The file has one interface for
    /// each direction of each link, and shows packets as they enter it. Drops and marks are comments.
    pub fn pcapng(&self) -> Vec<u8> {
        let name = |node: usize| &self.nodes[node].name;
        let links = self.topology.links.iter();
        let interfaces = links.map(|joint| format!("{} -> {}", name(joint.from), name(joint.to)));
        let interfaces: Vec<String> = interfaces.collect();
        let capture = self.evidence.capture.as_ref();
        capture.map_or_else(Vec::new, |capture| {
            capture.file(&interfaces, &self.evidence.secrets.text())
        })
    }

    /// Returns the log for the secrets of a client that is not an engine, so that its packets can be decrypted.
    pub fn key_log(&self) -> Arc<dyn rustls::KeyLog> {
        self.evidence.secrets.clone()
    }

    /// Writes the transcript and the packets to files. A later run of the same test and seed replaces them.
    pub(crate) fn leave_evidence(&self) {
        let seed = self.seed();
        let Some(directory) = seed.evidence() else {
            return;
        };
        let name = format!("{}-{}", seed.test().replace("::", "-"), seed.value());
        let (text, packets) = (self.transcript().to_string(), self.pcapng());
        for (ending, bytes) in [("txt", text.as_bytes()), ("pcapng", &packets)] {
            let path = directory.join(format!("{name}.{ending}"));
            // A failed write must not hide the reason for which the test failed.
            drop(std::fs::write(path, bytes));
        }
    }
}
