//! The reverse forwards of a client, as `/v1/status` shows them.

use serde::Serialize;

use crate::shown::ShownValue;

/// The list of reverse forwards.
pub type ReverseForwards = ShownValue<Vec<ReverseForward>>;

/// The state of one reverse forward.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReverseForward {
    /// The address on which the server is asked to listen.
    pub listen: String,
    /// The target to which its connections lead.
    pub target: String,
    /// The address on which the server listens, or `None` if it does not listen.
    pub bound: Option<String>,
    /// The label of the code with which the server has refused or ended the forward.
    pub refused: Option<&'static str>,
}
