//! Sends new rules to the workers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::channel;
use tracing::warn;

use super::change::{ClientChange, RevokedCounts, Rules, RulesUpdate};
use crate::mailbox::{Mailbox, Message};
use crate::settings::TransportSettings;

/// Time after which a worker that has not applied the new rules is reported as stuck.
const SLOW: Duration = Duration::from_secs(10);

/// Sends the new rules to every worker, and waits until all workers apply them.
pub(super) async fn send_rules(
    rules: &Rules,
    client: Option<&Arc<ClientChange>>,
    transport: Option<&Arc<TransportSettings>>,
    mailboxes: &[Mailbox],
) -> RevokedCounts {
    let (done, mut answers) = channel(mailboxes.len().max(1));
    for mailbox in mailboxes {
        let change = RulesUpdate {
            rules: rules.clone(),
            client: client.cloned(),
            transport: transport.cloned(),
            done: done.clone(),
        };
        mailbox.send(Message::Rules(change));
    }
    drop(done);
    let mut ended = RevokedCounts::default();
    // `None` means that all workers have answered or ended.
    loop {
        match tokio::time::timeout(SLOW, answers.recv()).await {
            Ok(Some(answer)) => {
                ended.connections += answer.connections;
                ended.flows += answer.flows;
            }
            Ok(None) => break,
            Err(_) => {
                warn!(target: "quictun", "a worker has not taken the new configuration yet: is it stuck?");
            }
        }
    }
    ended
}
