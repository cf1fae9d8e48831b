//! Signs an attempt to join with the secret of an invitation, and verifies the signature.

use std::fmt;
use std::io;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use quictun_wire::invitation::{SECRET_LEN, is_client_name};
use quictun_wire::join::{Join, SIGNATURE_LEN};
use zeroize::Zeroizing;

use crate::settings::Pin;

/// These contexts separate domains: nothing else is signed with this key or hashed to it, in this or any other program.
const KEY_CONTEXT: &[u8] = b"quictun invitation key 1\0";
const JOIN_CONTEXT: &[u8] = b"quictun join 1\0";

/// The one-time secret of an invitation's code. Dropping it erases it from memory.
pub struct InviteSecret(Zeroizing<[u8; SECRET_LEN]>);

/// The public half of the key that is derived from a secret.
pub(super) type PublicKey = [u8; 32];

/// One attempt to join, as the server sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinAttempt {
    /// The TLS exporter value of the connection.
    pub exporter: [u8; 32],
    /// The pin of the key with which the client has authenticated on that connection.
    pub pin: Pin,
    /// The JOIN that the client has sent.
    pub join: Join,
}

impl InviteSecret {
    /// Creates a random secret.
    ///
    /// # Errors
    ///
    /// Fails if the system's random number generator fails.
    pub fn random() -> io::Result<Self> {
        let mut secret = Zeroizing::new([0; SECRET_LEN]);
        aws_lc_rs::rand::fill(secret.as_mut())
            .map_err(|_| io::Error::other("cannot get random numbers from the system"))?;
        Ok(Self(secret))
    }

    /// Creates the secret from the bytes of a code.
    pub fn of(bytes: &[u8; SECRET_LEN]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    /// Returns the bytes of the secret, to put them into a code.
    pub fn as_bytes(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }

    /// Returns the JOIN of the client `name` whose key has this pin, for the connection with this exporter value.
    pub fn join(&self, name: &str, exporter: &[u8; 32], pin: Pin) -> Join {
        let mut join = Join {
            name: name.to_owned(),
            signature: [0; SIGNATURE_LEN],
        };
        let signature = self.key().sign(&message(name, exporter, pin));
        join.signature.copy_from_slice(signature.as_ref());
        join
    }

    pub(super) fn public_key(&self) -> PublicKey {
        let mut public = [0; 32];
        public.copy_from_slice(self.key().public_key().as_ref());
        public
    }

    fn key(&self) -> Ed25519KeyPair {
        let mut seed = digest::Context::new(&digest::SHA256);
        seed.update(KEY_CONTEXT);
        seed.update(&*self.0);
        let seed = Zeroizing::new(seed.finish().as_ref().to_vec());
        Ed25519KeyPair::from_seed_unchecked(&seed)
            .expect("invariant: every 32 bytes are a seed of Ed25519")
    }
}

impl fmt::Debug for InviteSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl JoinAttempt {
    /// Verifies the signature (PROTOCOL JOIN-3). All compared values are public, so timing reveals nothing.
    pub(super) fn is_signed_by(&self, key: &PublicKey) -> bool {
        let message = message(&self.join.name, &self.exporter, self.pin);
        let key = UnparsedPublicKey::new(&ED25519, key);
        key.verify(&message, &self.join.signature).is_ok()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let name = self.join.name.as_bytes();
        [&self.exporter[..], &self.pin.0, &self.join.signature, name].concat()
    }

    /// Decodes an attempt. Returns `None` if the bytes are not an attempt, or if no client could have its name.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (exporter, bytes) = bytes.split_first_chunk()?;
        let (pin, bytes) = bytes.split_first_chunk()?;
        let (signature, name) = bytes.split_first_chunk()?;
        let name = std::str::from_utf8(name).ok()?;
        is_client_name(name).then(|| Self {
            exporter: *exporter,
            pin: Pin(*pin),
            join: Join {
                name: name.to_owned(),
                signature: *signature,
            },
        })
    }
}

impl fmt::Debug for JoinAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinAttempt")
            .field("pin", &self.pin)
            .field("join", &self.join)
            .finish_non_exhaustive()
    }
}

/// Returns the bytes that are signed (PROTOCOL JOIN-2). All parts but the name have a fixed length.
fn message(name: &str, exporter: &[u8; 32], pin: Pin) -> Vec<u8> {
    [JOIN_CONTEXT, exporter, &pin.0, name.as_bytes()].concat()
}
