//! Unique ids of flows, for logs and the HTTP interface.

use std::sync::OnceLock;

use aws_lc_rs::{digest, rand};
use quictun_engine::FlowId;

/// Computes the UUID of a flow: always the same within a process, and another one in another process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowUuids {
    pub(crate) seed: [u8; 16],
}

impl FlowUuids {
    /// Returns the generator of this process, so that a flow has the same UUID wherever it is shown.
    pub(crate) fn of_process() -> Self {
        static OF_PROCESS: OnceLock<FlowUuids> = OnceLock::new();
        *OF_PROCESS.get_or_init(Self::random)
    }

    pub(crate) fn random() -> Self {
        let mut seed = [0; 16];
        // If the system's generator fails, the seed stays zero. UUIDs then repeat after a restart, which is harmless.
        rand::fill(&mut seed).ok();
        Self { seed }
    }

    /// Returns a UUID in the form of version 4 (RFC 9562 section 5.4), made from a hash over the seed.
    pub(crate) fn of(&self, worker: usize, flow: FlowId) -> String {
        let mut input = digest::Context::new(&digest::SHA256);
        input.update(&self.seed);
        input.update(&(worker as u64).to_be_bytes());
        input.update(&flow.0.to_be_bytes());
        let hash = input.finish();
        let mut bits = [0; 16];
        bits.copy_from_slice(&hash.as_ref()[..16]);
        let bits =
            u128::from_be_bytes(bits) & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            bits >> 96,
            bits >> 80 & 0xffff,
            bits >> 64 & 0xffff,
            bits >> 48 & 0xffff,
            bits & 0xffff_ffff_ffff
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn uuids_are_version_4_in_form_and_differ_between_flows_workers_and_processes() {
        let uuids = FlowUuids { seed: [1; 16] };
        let all = [
            uuids.of(0, FlowId(0)),
            uuids.of(0, FlowId(1)),
            uuids.of(1, FlowId(0)),
            FlowUuids { seed: [2; 16] }.of(0, FlowId(0)),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 4);
        assert_eq!(uuids.of(0, FlowId(0)), all[0]);
        assert_ne!(FlowUuids::random().seed, FlowUuids::random().seed);
        assert_eq!(FlowUuids::of_process().seed, FlowUuids::of_process().seed);
        for uuid in all {
            let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
            assert_eq!(&uuid[14..15], "4", "{uuid}");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
        }
    }
}
