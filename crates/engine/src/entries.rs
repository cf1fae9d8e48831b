//! Types of the flow crate with the QUIC library's stream id.

use quinn_proto::StreamId;

pub(crate) type FlowEntry<S> = quictun_flow::FlowEntry<S, StreamId>;
pub(crate) type Flows<S> = quictun_flow::Flows<S, StreamId>;
pub(crate) type StreamKey = quictun_flow::StreamKey<StreamId>;
