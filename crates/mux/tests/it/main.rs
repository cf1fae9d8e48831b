//! The committed fuzz corpora.

mod corpus;
