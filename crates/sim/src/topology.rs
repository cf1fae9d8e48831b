//! Nodes, the links between them, and the routes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use quictun_link::{Link, LinkConfig};

#[derive(Debug, Default)]
pub(crate) struct Topology {
    /// All links, in the order of their creation.
    pub(crate) links: Vec<DirectedLink>,
    index: BTreeMap<(usize, usize), usize>,
    /// For each node, true if it forwards packets to other nodes.
    forwards: Vec<bool>,
    /// The first link on the route from each node to each other node, or `NONE` if there is no route.
    routes: Vec<Vec<u32>>,
    stale: bool,
}

#[derive(Debug)]
pub(crate) struct DirectedLink {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) link: Link,
}

const NONE: u32 = u32::MAX;

impl Topology {
    /// Adds a node. `forwards` is true for a router.
    pub(crate) fn add_node(&mut self, forwards: bool) {
        self.forwards.push(forwards);
        self.stale = true;
    }

    /// Joins two nodes in one direction. An existing link between them in that direction is replaced.
    pub(crate) fn join(&mut self, from: usize, to: usize, link: Link) {
        let directed = DirectedLink { from, to, link };
        if let Some(&index) = self.index.get(&(from, to)) {
            self.links[index] = directed;
            return;
        }
        self.index.insert((from, to), self.links.len());
        self.links.push(directed);
        self.stale = true;
    }

    pub(crate) fn link(&self, from: usize, to: usize) -> Option<&Link> {
        let index = *self.index.get(&(from, to))?;
        Some(&self.links[index].link)
    }

    pub(crate) fn link_mut(&mut self, from: usize, to: usize) -> Option<&mut Link> {
        let index = *self.index.get(&(from, to))?;
        Some(&mut self.links[index].link)
    }

    /// Returns the first link on the route between two nodes, and its number.
    pub(crate) fn first_link(
        &mut self,
        from: usize,
        to: usize,
    ) -> Option<(usize, &mut DirectedLink)> {
        if std::mem::take(&mut self.stale) {
            self.compute_routes();
        }
        let index = self.routes[from][to] as usize;
        self.links.get_mut(index).map(|directed| (index, directed))
    }

    /// Computes the routes: those with the fewest links and, among these, the one over the earliest link.
    fn compute_routes(&mut self) {
        let nodes = self.forwards.len();
        self.routes = vec![vec![NONE; nodes]; nodes];
        let mut out: Vec<Vec<usize>> = vec![Vec::new(); nodes];
        for (index, directed) in self.links.iter().enumerate() {
            out[directed.from].push(index);
        }
        for (from, routes) in self.routes.iter_mut().enumerate() {
            let mut open = VecDeque::from([(from, NONE)]);
            while let Some((node, first)) = open.pop_front() {
                if node != from && !self.forwards[node] {
                    continue;
                }
                for &index in &out[node] {
                    let to = self.links[index].to;
                    if to != from && routes[to] == NONE {
                        routes[to] = if first == NONE {
                            u32::try_from(index).expect("invariant: memory holds fewer links")
                        } else {
                            first
                        };
                        open.push_back((to, routes[to]));
                    }
                }
            }
        }
    }
}

/// Creates the link of `config` between two nodes, with randomness from the run's `seed`.
pub(crate) fn make_link(
    seed: u64,
    from: usize,
    to: usize,
    config: LinkConfig,
    start: Instant,
) -> Link {
    let seed = seed ^ ((from as u64) << 40) ^ ((to as u64) << 20);
    Link::new(config, seed, start)
}
