//! The options of HELLO and `HELLO_ACK` by which a client joins with an invitation (PROTOCOL section 5.7).

use std::fmt;

use crate::code::FlowCode;
use crate::invitation::is_client_name;
use crate::open::{put_bytes, take_bytes};

/// The JOIN option of HELLO.
pub(crate) const OPTION_JOIN: u64 = 0x04;

/// The GRANT option of `HELLO_ACK`.
pub(crate) const OPTION_GRANT: u64 = 0x06;

/// Length of an Ed25519 signature (RFC 8032), bytes.
pub const SIGNATURE_LEN: usize = 64;

/// Maximum number of rules in a GRANT.
pub const MAX_RULES: usize = 64;

/// Maximum length of a GRANT, bytes. It keeps `HELLO_ACK` below its own limit.
pub const MAX_GRANT: usize = 3072;

/// JOIN: a client that the server does not know yet proves that it has an invitation's code.
#[derive(Clone, PartialEq, Eq)]
pub struct Join {
    /// Name of the invited client.
    pub name: String,
    /// Signature by the key that is derived from the code's secret.
    pub signature: [u8; SIGNATURE_LEN],
}

impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// GRANT: the client's name at the server from now on, and the targets it may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The client's name at the server.
    pub name: String,
    /// The client's rules, as the server's configuration writes them. Rules that exceed the limits are left out.
    pub allow: Vec<String>,
}

impl Join {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = self.signature.to_vec();
        value.extend(self.name.as_bytes());
        value
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, FlowCode> {
        let (signature, name) = value.split_first_chunk().ok_or(FlowCode::BadOpen)?;
        Ok(Self {
            name: client_name(name)?,
            signature: *signature,
        })
    }
}

impl Grant {
    /// Makes a grant with as many of the rules as fit.
    pub fn new(name: &str, allow: impl IntoIterator<Item = String>) -> Self {
        let mut room = MAX_GRANT.saturating_sub(COST + name.len());
        let fits = |rule: &String| {
            let left = room.checked_sub(COST + rule.len());
            room = left.unwrap_or(room);
            left.is_some() && is_shown(rule)
        };
        Self {
            name: name.to_owned(),
            allow: allow.into_iter().filter(fits).take(MAX_RULES).collect(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = Vec::new();
        put_bytes(self.name.as_bytes(), &mut value);
        for rule in &self.allow {
            put_bytes(rule.as_bytes(), &mut value);
        }
        value
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, FlowCode> {
        let (name, mut rest) = take_bytes(value)?;
        let mut allow = Vec::new();
        while !rest.is_empty() {
            let (rule, after) = take_bytes(rest)?;
            if allow.len() == MAX_RULES {
                return Err(FlowCode::BadOpen);
            }
            allow.push(shown(rule)?);
            rest = after;
        }
        Ok(Self {
            name: shown(name)?,
            allow,
        })
    }
}

/// Maximum length of a text's length prefix, bytes.
const COST: usize = 2;

/// Returns whether the text is safe to show and to write to a file.
fn is_shown(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_control)
}

fn shown(bytes: &[u8]) -> Result<String, FlowCode> {
    let text = std::str::from_utf8(bytes).ok();
    let text = text.filter(|text| is_shown(text));
    text.map(str::to_owned).ok_or(FlowCode::BadOpen)
}

fn client_name(bytes: &[u8]) -> Result<String, FlowCode> {
    let name = std::str::from_utf8(bytes).ok();
    let name = name.filter(|name| is_client_name(name));
    name.map(str::to_owned).ok_or(FlowCode::BadOpen)
}

#[cfg(test)]
mod tests {
    use super::*;

    // PROTOCOL JOIN-2.
    #[test]
    fn a_join_has_a_signature_and_a_name() {
        let join = Join {
            name: "laptop".to_owned(),
            signature: [5; SIGNATURE_LEN],
        };
        let value = join.encode();
        assert_eq!(value.len(), SIGNATURE_LEN + 6);
        assert_eq!(Join::decode(&value), Ok(join));
        for bad in [&value[..SIGNATURE_LEN], &value[..10], &[]] {
            assert_eq!(Join::decode(bad), Err(FlowCode::BadOpen));
        }
        let mut path = value;
        path.extend(b"/../x");
        assert_eq!(Join::decode(&path), Err(FlowCode::BadOpen));
    }

    // PROTOCOL JOIN-6: at the limits, and one above.
    #[test]
    fn a_grant_has_as_many_rules_as_fit() {
        let rules = |count: usize, length: usize| (0..count).map(move |_| "x".repeat(length));
        let grant = Grant::new("laptop", rules(MAX_RULES + 1, 4));
        assert_eq!(grant.allow.len(), MAX_RULES);
        assert_eq!(Grant::decode(&grant.encode()), Ok(grant.clone()));
        let more = Grant {
            allow: rules(MAX_RULES + 1, 4).collect(),
            ..grant
        };
        assert_eq!(Grant::decode(&more.encode()), Err(FlowCode::BadOpen));
        let long = Grant::new("laptop", rules(10, 1000));
        assert_eq!(long.allow.len(), 3);
        assert!(long.encode().len() <= MAX_GRANT);
        assert_eq!(Grant::decode(&long.encode()), Ok(long));
    }

    #[test]
    fn a_grant_with_control_characters_is_refused() {
        let hostile = Grant {
            name: "laptop".to_owned(),
            allow: vec!["a:1\n[[client]]".to_owned()],
        };
        assert_eq!(Grant::decode(&hostile.encode()), Err(FlowCode::BadOpen));
        assert_eq!(Grant::new("laptop", hostile.allow).allow, [""; 0]);
        assert_eq!(Grant::decode(&[0]), Err(FlowCode::BadOpen));
    }
}
