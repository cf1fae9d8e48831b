//! Safe wrappers over Linux system calls that the standard library and rustix offer only on raw descriptors, or not at
//! all.
//!
//! Every function here is safe to call at any time. `unsafe` stays inside this crate, and each block states why it is
//! sound. Errors are the system's; a function's documentation names only those that callers distinguish.

mod addressed_datagrams;
mod batch;
mod buffer_pool;
mod command_runner;
mod companion;
pub mod confine;
mod contain;
mod control_message;
mod device_index;
mod drops;
mod end_tcp;
mod epoll_wait;
mod ethtool;
mod firewall;
mod frame_counter;
mod inherit_socket;
mod inherited;
mod local_address;
mod memory_limits;
mod net_namespace;
mod netlink;
mod network;
mod nofile;
mod original_destination;
mod own_mounts;
mod packet_socket;
mod packets;
mod queueing;
mod random;
mod route_watch;
mod routing;
mod scheduling;
mod sealed_memory;
mod signals;
mod sleep_watch;
mod small_pages;
mod socket_buffer;
mod socket_option;
mod stack_sampler;
mod standard_streams;
mod syscall_result;
mod tcp_info;
mod tcp_read;
mod tun;
mod uninterrupted;
mod unsent;

pub use addressed_datagrams::{
    AddressedDatagram, recv_addressed, report_destinations, send_addressed,
};
pub use batch::{BatchError, Batches, Operation};
pub use buffer_pool::BufferPool;
pub use command_runner::{CommandRunner, WaitOutcome, refusal};
pub use companion::{Companion, start_companion};
pub use contain::{
    ContainError, ContainedProcess, ForkResult, InitProcess, NamespaceUser, Rights, contain,
    exit_code,
};
pub use device_index::device_index;
pub use drops::socket_drops;
pub use end_tcp::{accepted_tcp, end_tcp};
pub use epoll_wait::epoll_wait;
pub use ethtool::Ethtool;
pub use firewall::{ConnectionSet, Firewall, Hook, Statement};
pub use frame_counter::FrameCounter;
pub use inherit_socket::inherit_socket;
pub use inherited::{InheritError, InheritedFd, close_inherited_fds, inherited_fds};
pub use local_address::is_local;
pub use memory_limits::{LimitSource, MemoryLimits};
pub use net_namespace::NetNamespace;
pub use network::{CableEnd, IpVersion, Network, set_sysctl};
pub use nofile::raise_nofile_limit;
pub use original_destination::{DivertedDatagram, receive_diverted, report_original_destinations};
pub use own_mounts::OwnMounts;
pub use packet_socket::{PacketDrops, PacketSocket, Reception, VnetHeader};
pub use packets::{FdPacket, PACKET_FDS_MAX, PACKET_MAX, PacketListener, PacketPeer, PacketStream};
pub use queueing::{Discipline, Netem, TokenBucket};
pub use random::random;
pub use route_watch::RouteWatch;
pub use routing::{RouteTarget, RoutingRule, RuleAction, Selector};
pub use scheduling::{SchedulingClass, raise_scheduling_class, raise_scheduling_class_of};
pub use sealed_memory::{read_sealed, seal_memory};
pub use signals::{
    END_SIGNALS, ReceivedSignal, Signals, ignore_user_signals, is_ignored, release_signals,
    restore_default, with_default_signals,
};
pub use sleep_watch::{ClockReading, SleepWatch};
pub use small_pages::use_small_pages;
pub use socket_buffer::{BufferSide, socket_buffer_force};
pub use socket_option::{set_mark, set_udp_gro, set_unicast_device};
pub use stack_sampler::{SAMPLES_PER_S, StackSample, StackSampler};
pub use standard_streams::{NullStreams, with_standard_streams_only};
pub use tcp_info::{TcpInfo, tcp_info};
pub use tcp_read::{TcpRead, report_unread, tcp_read};
pub use tun::Tun;
pub use uninterrupted::{pause_until, poll_until, uninterrupted};
pub use unsent::tcp_unsent;
