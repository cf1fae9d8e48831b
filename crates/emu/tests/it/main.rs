//! Real TCP and UDP across an emulated link, in network namespaces; as root, or in a user namespace.
//!
//! Everything is held against counts and bytes; nothing against how fast the machine is.

mod across;
mod place;
