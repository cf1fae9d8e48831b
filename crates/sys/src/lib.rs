//! Safe wrappers over Linux: what the standard library and rustix leave to raw descriptors or raw calls.
//!
//! Every function here is safe to call at any time. `unsafe` stays inside this crate, each block with its argument.
//!
//! | function | what |
//! |---|---|
//! | [`BufferPool`] | receive buffers that are not cleared each time |
//! | [`inherited_fds`] | sockets that a service manager opened for us (socket activation) |
//! | [`raise_nofile_limit`] | as many open descriptors as we are allowed |
//! | [`socket_buffer_force`] | socket buffers beyond `rmem_max` / `wmem_max` where permitted |
//! | [`socket_drops`] | datagrams the kernel threw away before we read them |

mod buffer_pool;
mod drops;
mod inherited;
mod nofile;
mod socket_buffer;

pub use buffer_pool::BufferPool;
pub use drops::socket_drops;
pub use inherited::{InheritError, InheritedFd, inherited_fds};
pub use nofile::{NofileLimit, raise_nofile_limit};
pub use socket_buffer::{BufferSide, socket_buffer_force};
