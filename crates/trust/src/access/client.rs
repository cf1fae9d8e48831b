//! A client that the server knows, and the targets that its rules let it reach.

use std::net::SocketAddr;
use std::sync::Arc;

use quictun_wire::listening::ListenAddress;
use quictun_wire::target::Target;

use super::address::is_internal;
use super::closed::ClosedReason;
use super::denied::{AccessDenied, DeniedRequest};
use super::listen::{self, ListenDenied, ListenRule};
use super::rule::{self, Rule, RuleMatch};
use crate::limits::ClientLimits;

/// Returns the longest directory; `None` if one of the rules has none, and so lets links lead anywhere.
fn narrowest<'a>(directories: impl Iterator<Item = Option<&'a str>>) -> Option<&'a str> {
    let all: Option<Vec<&str>> = directories.collect();
    all?.into_iter().max_by_key(|directory| directory.len())
}

/// A client that the server knows.
#[derive(Debug, PartialEq, Eq)]
pub struct Client {
    pub(super) name: Arc<str>,
    /// Digests of the keys, secrets and certificate names by which the client can prove its identity.
    pub(super) proofs: Arc<[[u8; 32]]>,
    pub(super) rules: Vec<Rule>,
    /// The rules for UDP. No other rule opens a target for datagrams.
    pub(super) udp_rules: Vec<Rule>,
    pub(super) listen: Vec<ListenRule>,
    pub(super) limits: ClientLimits,
    /// True if the server accepts the addresses that the client reports for its applications.
    pub(super) names_sources: bool,
}

impl Client {
    /// Returns the client's name in logs, metrics and REST.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the client's name as a shared string, for callers that keep it.
    pub fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// Returns digests of the keys, secrets and certificate names by which the client can prove its identity. They stay
    /// the same if the client gets another name.
    pub fn proofs(&self) -> Arc<[[u8; 32]]> {
        self.proofs.clone()
    }

    /// Returns the limits of the client's use.
    pub fn limits(&self) -> &ClientLimits {
        &self.limits
    }

    fn rules_for(&self, target: &Target) -> &[Rule] {
        if target.takes_datagrams() {
            &self.udp_rules
        } else {
            &self.rules
        }
    }

    /// Decides on a target. A name that no rule can name is not looked up (PROTOCOL AUTH-3).
    pub(super) fn may_reach(&self, target: &Target) -> Result<(), AccessDenied> {
        let rules = self.rules_for(target);
        // A target that is an address literal is judged elsewhere.
        let looked_up = target.host_and_port().is_some();
        let closed = looked_up && !rules.iter().any(Rule::names_hosts);
        let (mut reached, mut non_canonical) = (false, false);
        for rule in rules {
            match rule.reach(target) {
                RuleMatch::Yes if closed => reached = true,
                RuleMatch::Yes => return Ok(()),
                RuleMatch::NonCanonicalPath => non_canonical = true,
                RuleMatch::No => {}
            }
        }
        let denial = self.denial(target, rule::narrowest_rule(target));
        Err(if reached {
            AccessDenied::NoNames(denial)
        } else if non_canonical {
            AccessDenied::NonCanonicalPath(denial)
        } else {
            AccessDenied::NoRule(denial)
        })
    }

    /// Decides on the Unix socket of the server's HTTP interface.
    pub(super) fn may_reach_own_path(
        &self,
        target: &Target,
        path: &str,
    ) -> Result<(), AccessDenied> {
        if self.rules.iter().any(|rule| rule.names_path(path)) {
            return Ok(());
        }
        let denial = self.denial(target, rule::narrowest_rule(target));
        Err(AccessDenied::ClosedPathByWildcard(denial))
    }

    pub(super) fn may_reach_addr(
        &self,
        target: &Target,
        host: &str,
        address: SocketAddr,
        closed: Option<ClosedReason>,
    ) -> Result<(), AccessDenied> {
        let (addr, port) = (address.ip(), address.port());
        let rules = self.rules_for(target);
        let any = |test: &dyn Fn(&Rule) -> bool| rules.iter().any(test);
        let by_address = any(&|rule| rule.names_address(port, addr));
        let by_name = any(&|rule| rule.names_host(host, port));
        let by_wildcard = any(&|rule| rule.is_wildcard_for(port));
        let named = by_address || by_name || by_wildcard;
        let is_literal = target.ip_literal().is_some();
        let network = if target.takes_datagrams() { "udp:" } else { "" };
        let denial = || self.denial(target, format!("{network}{address}"));
        match closed {
            Some(closed) if any(&|rule| rule.opens(port, addr, closed)) => Ok(()),
            Some(closed) if named => Err(AccessDenied::ClosedByName(denial(), addr, closed)),
            None if by_address || by_name => Ok(()),
            // An outside name server must not choose an inside address. The writer of an address literal has chosen it.
            None if by_wildcard && !is_literal && is_internal(addr) => {
                let denial = self.denial(target, rule::narrowest_rule(target));
                Err(AccessDenied::InternalByWildcard(denial, addr))
            }
            None if by_wildcard => Ok(()),
            _ if is_literal => Err(AccessDenied::NoRule(denial())),
            _ => Err(AccessDenied::NoRuleForAddr(denial(), addr)),
        }
    }

    /// Returns the directory below which the socket at a path must be, links included: that of the narrowest rule for
    /// it. `None` if a rule names the path itself, or everything.
    pub(super) fn directory_of(&self, path: &str) -> Option<&str> {
        let rules = self.rules.iter().filter(|rule| rule.names_socket(path));
        narrowest(rules.map(Rule::directory))
    }

    /// Returns the same for a listener.
    pub(super) fn listen_directory_of(&self, address: &ListenAddress) -> Option<&str> {
        let rules = self.listen.iter().filter(|rule| rule.names(address));
        narrowest(rules.map(ListenRule::directory))
    }

    pub(super) fn may_listen(&self, address: &ListenAddress) -> Result<(), ListenDenied> {
        if self.listen.iter().any(|rule| rule.names(address)) {
            return Ok(());
        }
        let (name, rule) = (self.name.to_string(), listen::narrowest_rule(address));
        Err(ListenDenied::NoRule(name, address.clone(), rule))
    }

    fn denial(&self, target: &Target, rule: String) -> DeniedRequest {
        DeniedRequest {
            client: self.name.to_string(),
            target: target.clone(),
            rule,
        }
    }
}
