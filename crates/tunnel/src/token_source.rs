//! Where the token of a new flow comes from, and what it says: quic-tun's plugins.
//!
//! On the client a [`TokenPlugin`] is made once per forward; for each new connection of an application
//! the control thread takes [`TokenPlugin::fixed`], or awaits [`TokenPlugin::token`] where there is no
//! fixed one. On the server [`parse_token`] turns what was received into a target.

mod file;
mod http;
mod parser;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use quictun_wire::token::{PackError, pack};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

pub use file::FileError;
pub(crate) use file::MAX_FILE;
pub use http::{HttpError, UrlError};
pub use parser::{ParseTokenError, parse_token};

use crate::settings::TokenSource;
use http::HttpSource;
use quictun_control::log::shown_url;

/// Gives the token of each new flow.
#[derive(Clone, Debug)]
pub struct TokenPlugin {
    source: Source,
    /// Look-ups that may run at once.
    permits: Arc<Semaphore>,
}

/// The application at the local end of a new flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppAddr {
    /// It came over TCP.
    Ip(SocketAddr),
    /// It came over a Unix socket, where clients have no address.
    Unix,
}

/// Why a token source cannot be used at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenSourceError {
    /// The fixed token cannot be sent.
    #[error("the token source {token:?} is no token")]
    Fixed {
        /// The token as given.
        token: String,
        /// What is wrong with it.
        source: PackError,
    },
    /// The URL cannot be asked.
    #[error("the token source {url:?} is no URL that can be asked")]
    Url {
        /// The URL, without credentials and query.
        url: String,
        /// What is wrong with it.
        source: UrlError,
    },
}

/// Why there is no token for a flow.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token file has none, or cannot be read.
    #[error("no token from the file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: FileError,
    },
    /// The token server has none, or cannot be asked.
    #[error("no token from {url}")]
    Http {
        /// The URL that was asked, without credentials and query.
        url: String,
        /// What is wrong.
        source: HttpError,
    },
    /// There is a token, but it cannot be sent.
    #[error("the token for {app} is unusable")]
    Unusable {
        /// For which application.
        app: AppAddr,
        /// What is wrong with it.
        source: PackError,
    },
    /// The process is ending.
    #[error("the client is shutting down")]
    ShuttingDown,
}

#[derive(Clone, Debug)]
enum Source {
    Fixed(String),
    File(PathBuf),
    Http(Arc<HttpSource>),
}

impl TokenPlugin {
    /// Makes the plugin. A token file need not be there yet; a URL is not asked yet.
    pub fn new(source: &TokenSource) -> Result<Self, TokenSourceError> {
        let source = match source {
            TokenSource::Fixed(token) => {
                pack(token).map_err(|source| TokenSourceError::Fixed {
                    token: token.clone(),
                    source,
                })?;
                Source::Fixed(token.clone())
            }
            TokenSource::File(path) => Source::File(path.clone()),
            TokenSource::Http(url) => {
                let http = HttpSource::new(url).map_err(|source| TokenSourceError::Url {
                    url: shown_url(url),
                    source,
                })?;
                Source::Http(Arc::new(http))
            }
        };
        Ok(Self {
            source,
            permits: Arc::new(Semaphore::new(MAX_LOOK_UPS)),
        })
    }

    /// The token that is the same for every flow, where there is such a one.
    pub fn fixed(&self) -> Option<&str> {
        match &self.source {
            Source::Fixed(token) => Some(token),
            Source::File(_) | Source::Http(_) => None,
        }
    }

    /// Finds the token for a flow of `app`; it can be sent as it is.
    ///
    /// Answers within 5 seconds where the source is a URL. Look-ups beyond 64 at once wait their turn.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the answer; a look-up that has begun ends by itself.
    pub async fn token(&self, app: &AppAddr) -> Result<String, TokenError> {
        let token = match &self.source {
            Source::Fixed(token) => return Ok(token.clone()),
            Source::File(path) => self.look_up_file(path.clone(), *app).await?,
            Source::Http(http) => self.ask_http(http, *app).await?,
        };
        pack(&token).map_err(|source| TokenError::Unusable { app: *app, source })?;
        Ok(token)
    }

    async fn look_up_file(&self, path: PathBuf, app: AppAddr) -> Result<String, TokenError> {
        let permits = self.permits.clone();
        let permit = permits
            .acquire_owned()
            .await
            .map_err(|_| TokenError::ShuttingDown)?;
        let found = spawn_blocking(move || {
            // Held until the read is over, even if nobody waits for it any more.
            let _permit = permit;
            file::token(&path, app).map_err(|source| TokenError::File { path, source })
        });
        found.await.map_err(|_| TokenError::ShuttingDown)?
    }

    async fn ask_http(&self, http: &Arc<HttpSource>, app: AppAddr) -> Result<String, TokenError> {
        let failed = |source| TokenError::Http {
            url: shown_url(http.url()),
            source,
        };
        let asked = async {
            let permits = self.permits.clone();
            let permit = permits
                .acquire_owned()
                .await
                .map_err(|_| TokenError::ShuttingDown)?;
            let http = http.clone();
            let answer = spawn_blocking(move || {
                let _permit = permit;
                http.token(app)
            });
            answer
                .await
                .map_err(|_| TokenError::ShuttingDown)?
                .map_err(failed)
        };
        // The request has the same deadline; this one covers the wait for a turn.
        match tokio::time::timeout(http.deadline(), asked).await {
            Ok(answer) => answer,
            Err(_) => Err(failed(HttpError::Deadline {
                seconds: http.deadline().as_secs(),
            })),
        }
    }
}

impl fmt::Display for AppAddr {
    /// `ip:port` with IPv4 addresses in their own form, or `unix`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(addr) => SocketAddr::new(addr.ip().to_canonical(), addr.port()).fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

/// Look-ups of one plugin at once: enough for a burst of a SPICE client's connections from several
/// users, few enough that a slow source holds back no other work of the control thread's pool.
const MAX_LOOK_UPS: usize = 64;
