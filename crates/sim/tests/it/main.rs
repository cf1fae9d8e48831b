//! The tunnel in virtual time: real engines, simulated links and applications.
//!
//! A failing run prints the command that repeats it. With `QUICTUN_EVIDENCE=DIR`, tests write their transcripts and
//! their packets (pcapng, with the keys to decrypt them) to that directory. Repeat one seed of the random runs with
//! `QUICTUN_SEED=<seed> cargo test -p quictun-sim --test it <test>`.

mod account;
mod bond_limits;
mod bonds;
mod broken;
mod capture;
mod carrier_schedules;
mod carriers;
mod close_table;
mod codes;
mod control;
mod cross_traffic;
mod crowd;
mod datagram_schedules;
mod datagrams;
mod determinism;
mod directions;
mod echoes;
mod endings;
mod faults;
mod flood;
mod greed;
mod guests;
mod hand_over;
mod handshakes;
mod handshakes_only;
mod hostile;
mod hostile_tcp;
mod idle;
mod injected_faults;
mod key_exchange;
mod leftovers;
mod mtu;
mod network_change;
mod open;
mod oracle;
mod original;
mod places;
mod predict;
mod rates;
mod reconnect;
mod refusals;
mod reopen;
mod reordering;
mod reports;
mod resets;
mod resume;
mod reverse;
mod reverse_bonds;
mod revoked;
mod salvage;
mod schedules;
mod servers;
mod throughput;
mod transfers;
mod tunnel_pair;
