//! Tests of the crate's properties.

mod corpus;
