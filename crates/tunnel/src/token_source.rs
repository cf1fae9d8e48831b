//! Token sources and the token parser: quic-tun's plugins.
//!
//! The client makes a [`TokenPlugin`] once per forward. For each new connection of an application the control thread
//! takes [`TokenPlugin::fixed`], or awaits [`TokenPlugin::token`] if there is no fixed token. On the server,
//! [`parse_token`] turns a received token into a target.

mod file;
mod http;
mod parser;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use quictun_wire::token::{PackError, pack};
use thiserror::Error;
use tokio::sync::Semaphore;

pub(crate) use file::MAX_FILE;
pub(crate) use parser::{ParseTokenError, parse_token};

use crate::app_addr::AppAddr;
use crate::disk_queue::FILES;
use crate::lookup_threads;
use crate::settings::TokenSource;
use file::FileError;
use http::{HttpError, HttpSource, UrlError};
use quictun_control::log::shown_url;

#[derive(Clone, Debug)]
pub(crate) struct TokenPlugin {
    source: PluginSource,
    permits: Arc<Semaphore>,
}

#[derive(Debug, Error)]
pub(crate) enum TokenSourceError {
    #[error("the token source {0:?} is not a valid token")]
    Fixed(String, #[source] PackError),
    /// The URL cannot be requested. It is shown without credentials and query.
    #[error("the token source {0:?} is not a usable URL")]
    Url(String, #[source] UrlError),
}

#[derive(Debug, Error)]
pub(crate) enum TokenError {
    #[error("no token from the file {}", .0.display())]
    File(PathBuf, #[source] FileError),
    /// The token server has no token or cannot be requested. Its URL is shown without credentials and query.
    #[error("no token from {0}")]
    Http(String, #[source] HttpError),
    #[error("the token for {0} is unusable")]
    Unusable(AppAddr, #[source] PackError),
    #[error("the client is shutting down")]
    ShuttingDown,
}

#[derive(Clone, Debug)]
enum PluginSource {
    Fixed(String),
    File(PathBuf),
    Http(Arc<HttpSource>),
}

impl TokenPlugin {
    /// Makes the plugin. A token file need not exist yet, and a URL is not requested yet.
    pub(crate) fn new(source: &TokenSource) -> Result<Self, TokenSourceError> {
        let source = match source {
            TokenSource::Fixed(token) => {
                pack(token).map_err(|cause| TokenSourceError::Fixed(token.clone(), cause))?;
                PluginSource::Fixed(token.clone())
            }
            TokenSource::File(path) => PluginSource::File(path.clone()),
            TokenSource::Http(url) => {
                let http = HttpSource::new(url)
                    .map_err(|cause| TokenSourceError::Url(shown_url(url), cause))?;
                PluginSource::Http(Arc::new(http))
            }
        };
        Ok(Self {
            source,
            permits: Arc::new(Semaphore::new(MAX_LOOK_UPS)),
        })
    }

    /// Returns the token, if it is the same for every flow.
    pub(crate) fn fixed(&self) -> Option<&str> {
        match &self.source {
            PluginSource::Fixed(token) => Some(token),
            PluginSource::File(_) | PluginSource::Http(_) => None,
        }
    }

    /// Finds the token for a flow of `app`. The token has been checked, so it can be sent unchanged.
    ///
    /// If the source is a URL, it answers within 5 seconds. At most 64 requests run at once; others wait for their turn.
    /// Files are read one after the other.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the answer. A look-up that has begun ends by itself.
    pub(crate) async fn token(&self, app: &AppAddr) -> Result<String, TokenError> {
        let token = match &self.source {
            PluginSource::Fixed(token) => return Ok(token.clone()),
            PluginSource::File(path) => self.look_up_file(path.clone(), *app).await?,
            PluginSource::Http(http) => self.ask_http(http, *app).await?,
        };
        pack(&token).map_err(|cause| TokenError::Unusable(*app, cause))?;
        Ok(token)
    }

    async fn look_up_file(&self, path: PathBuf, app: AppAddr) -> Result<String, TokenError> {
        let found = FILES.run(move || file::token(&path, app).map_err(|cause| (path, cause)));
        let found = found.await.map_err(|_| TokenError::ShuttingDown)?;
        found.map_err(|(path, cause)| TokenError::File(path, cause))
    }

    /// Runs one look-up on a thread that may block, once a place for it is free.
    async fn look_up<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TokenError> {
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| TokenError::ShuttingDown)?;
        let found = lookup_threads::run(move || {
            // Held until the look-up is over, even if its answer is no longer awaited.
            let _permit = permit;
            run()
        });
        found.await.ok_or(TokenError::ShuttingDown)
    }

    async fn ask_http(&self, http: &Arc<HttpSource>, app: AppAddr) -> Result<String, TokenError> {
        let failed = |cause| TokenError::Http(shown_url(&http.url), cause);
        let asked = http.clone();
        let answer = self.look_up(move || asked.token(app));
        // The request has the same deadline. This one also covers the wait for a turn.
        match tokio::time::timeout(http.deadline, answer).await {
            Ok(answer) => answer?.map_err(failed),
            Err(_) => Err(failed(HttpError::Deadline(http.deadline.as_secs()))),
        }
    }
}

/// Maximum number of concurrent look-ups of one plugin. It allows a burst of connections from several users' SPICE
/// clients. It is small enough that a slow source does not block other work in the control thread's pool.
const MAX_LOOK_UPS: usize = 64;
