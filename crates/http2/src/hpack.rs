//! HPACK (RFC 7541): fields in the blocks of HEADERS and CONTINUATION frames.
//!
//! The decoder has the dynamic table of the peer. The encoder uses the static table and no dynamic one. It has
//! no state, except that a peer which reduces the table has to be told once that nothing is in it.

mod decoder;
mod encoder;
mod huffman;
mod table;

pub(crate) use decoder::{BlockError, Decoder};
pub(crate) use encoder::{EMPTY_TABLE, put_field, put_status};
pub(crate) use table::FIELD_OVERHEAD;
