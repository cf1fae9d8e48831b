//! The interface against another implementation, and the committed fuzz corpora.

mod corpus;
mod interop;
