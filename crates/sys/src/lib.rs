//! Safe wrappers over Linux: what the standard library and rustix leave to raw descriptors or raw calls.
//!
//! Every function here is safe to call at any time. `unsafe` stays inside this crate, each block with its argument.
//! Errors are the system's; a function's documentation names only those that a caller tells apart.
//!
//! | function | what |
//! |---|---|
//! | [`Batches`] | system calls in batches, through io_uring |
//! | [`BufferPool`] | receive buffers that are not cleared each time |
//! | [`Rule`], [`Way`] | routes beside the host's own |
//! | [`confine`] | what a process gives up before it looks at what strangers send |
//! | [`contain`] | a process, and all that it starts, in namespaces that end with it |
//! | [`end_tcp`], [`accepted_tcp`] | connections of others: ended, and which of them were accepted |
//! | [`epoll_wait`] | waiting to the microsecond |
//! | [`Ethtool`] | what a network device does itself: segmentation, merging, checksums |
//! | [`Firewall`], [`Part`] | packet filter rules of our own |
//! | [`FrameCounter`] | how many frames beyond some length arrive at a device |
//! | [`start_companion`] | a second process that keeps rights which this one gives up |
//! | [`inherit_socket`] | a socket that somebody left open for us |
//! | [`inherited_fds`] | sockets that a service manager opened for us (socket activation) |
//! | [`NetNamespace`], [`Network`], [`set_sysctl`] | networks of our own: cables, addresses, routes |
//! | [`be_prompt`] | a thread that runs soon after it is woken |
//! | [`Netem`], [`TokenBucket`], [`Discipline`] | what the kernel does to packets that leave a device |
//! | [`OwnMounts`] | files that look different to one process and those it starts |
//! | [`PacketSocket`] | super-packets of a network device, whole |
//! | [`raise_nofile_limit`] | as many open descriptors as we are allowed |
//! | [`set_udp_gro`] | datagrams received one by one, or merged |
//! | [`Signals`], [`with_default_signals`] | signals one by one, without handlers |
//! | [`set_mark`] | marks that routing and the packet filter see |
//! | [`socket_buffer_force`] | socket buffers beyond `rmem_max` / `wmem_max` where permitted |
//! | [`socket_drops`] | datagrams the kernel threw away before we read them |
//! | [`NullStreams`], [`with_standard_streams_only`] | descriptors that a program inherits, and its standard streams |
//! | [`StackSampler`] | where processor time goes: stacks of threads |
//! | [`tcp_info`] | round-trip time, losses and path of a TCP connection |
//! | [`tcp_unsent`] | what a TCP socket has not yet brought to the other end |
//! | [`use_small_pages`] | memory that is counted by what is used of it |
//! | [`Tun`] | IP packets of this host, super-packets whole |

mod batch;
mod buffer_pool;
mod companion;
pub mod confine;
mod contain;
mod drops;
mod end_tcp;
mod epoll_wait;
mod ethtool;
mod firewall;
mod first_process;
mod frame_counter;
mod inherit_socket;
mod inherited;
mod net_namespace;
mod netlink;
mod network;
mod nofile;
mod own_mounts;
mod packet_socket;
mod prompt;
mod queueing;
mod random;
mod returned;
mod routing;
mod signals;
mod small_pages;
mod socket_buffer;
mod socket_option;
mod stack_sampler;
mod standard_streams;
mod tcp_info;
mod tun;
mod unsent;

pub use batch::{BatchError, Batches, Operation};
pub use buffer_pool::BufferPool;
pub use companion::{Companion, start_companion};
pub use contain::{ContainError, Contained, Identity, Inside, Rights, Side, contain, exit_code};
pub use drops::socket_drops;
pub use end_tcp::{accepted_tcp, end_tcp};
pub use epoll_wait::epoll_wait;
pub use ethtool::Ethtool;
pub use firewall::{Firewall, Hook, Part, Set};
pub use first_process::{FirstProcess, Outcome, refusal};
pub use frame_counter::FrameCounter;
pub use inherit_socket::inherit_socket;
pub use inherited::{InheritError, InheritedFd, inherited_fds};
pub use net_namespace::NetNamespace;
pub use network::{CableEnd, Family, Network, set_sysctl};
pub use nofile::{NofileLimit, raise_nofile_limit};
pub use own_mounts::OwnMounts;
pub use packet_socket::{PacketDrops, PacketSocket, Reception, VnetHeader};
pub use prompt::{Promptness, be_prompt};
pub use queueing::{Discipline, Netem, TokenBucket};
pub use random::random;
pub use routing::{Next, Packets, Rule, Way};
pub use signals::{Came, Signals, with_default_signals};
pub use small_pages::use_small_pages;
pub use socket_buffer::{BufferSide, socket_buffer_force};
pub use socket_option::{set_mark, set_udp_gro};
pub use stack_sampler::{SAMPLES_PER_S, Stack, StackSampler};
pub use standard_streams::{NullStreams, with_standard_streams_only};
pub use tcp_info::{TcpInfo, tcp_info};
pub use tun::Tun;
pub use unsent::tcp_unsent;
