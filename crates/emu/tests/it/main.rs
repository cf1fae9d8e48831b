//! Tests real TCP and UDP across an emulated link, in network namespaces, as root or in a user namespace.
//!
//! The tests check counts and bytes. They do not depend on the speed of the machine.

mod across;
mod networks;
