//! Parses a token into a target: clear text or base64 (`--token-parser-key base64`).

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use quictun_wire::code::FlowCode;
use quictun_wire::target::{Target, TargetError};
use thiserror::Error;

use crate::settings::TokenParser;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ParseTokenError {
    #[error("the token is not standard base64: is the client's token plain text?")]
    NotBase64(#[source] base64::DecodeError),
    #[error("the token is base64 of something that is not UTF-8 text")]
    NotText,
    #[error("the token is not a valid target")]
    Target(#[from] TargetError),
}

impl ParseTokenError {
    /// Returns the code that the client receives.
    pub(crate) fn code(&self) -> FlowCode {
        match self {
            Self::NotBase64(_) | Self::NotText => FlowCode::BadOpen,
            Self::Target(error) => error.code(),
        }
    }
}

pub(crate) fn parse_token(parser: TokenParser, token: &str) -> Result<Target, ParseTokenError> {
    match parser {
        TokenParser::Cleartext => Ok(Target::parse(token)?),
        TokenParser::Base64 => {
            // base64(1) and Go's decoder both ignore line breaks.
            let token: String = token
                .chars()
                .filter(|c| !matches!(c, '\r' | '\n'))
                .collect();
            let decoded = GO_BASE64
                .decode(token)
                .map_err(ParseTokenError::NotBase64)?;
            let text = String::from_utf8(decoded).map_err(|_| ParseTokenError::NotText)?;
            Ok(Target::parse(&text)?)
        }
    }
}

/// Go's `base64.StdEncoding`, which encoded existing tokens: padded, with the bits after the last byte ignored.
const GO_BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);
