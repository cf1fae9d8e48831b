//! `quictun reconnect`: a running client replaces its connections, and its flows move to the new ones.

use clap::ArgMatches;
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::native::flags;
use quictun_control::settings::HttpListen;
use serde::Deserialize;

use crate::{ask, exit, which_process};

/// The answer to `POST /v1/reconnect`.
#[derive(Debug, Deserialize)]
struct ReconnectAnswer {
    connections: usize,
}

/// Parses the arguments. Returns the address of the client's HTTP interface.
pub(crate) fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<HttpListen, Fault> {
    let (at, _) = which_process::asked(&flags::RECONNECT, matches, inputs)?;
    Ok(at)
}

/// Sends the request, and prints what the client does.
pub(crate) fn main(at: &HttpListen) -> anyhow::Result<()> {
    let ReconnectAnswer { connections } = ask::post(at, "/v1/reconnect")?;
    Ok(exit::print(&summary(connections))?)
}

fn summary(connections: usize) -> String {
    match connections {
        0 => "no connection is up: the client dials already\n".to_owned(),
        1 => "1 connection is being replaced; flows move to the new one\n".to_owned(),
        _ => {
            format!("{connections} connections are being replaced; flows move to the new ones\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_many_are_replaced() {
        assert!(summary(0).starts_with("no connection is up"));
        assert!(summary(1).starts_with("1 connection is "));
        assert!(summary(4).starts_with("4 connections are "));
    }
}
