//! `quictun doctor --redirect` and `--tproxy`: prints the commands that lead connections, and with `--udp` datagrams, to
//! `quictun client --redirect` or `--tproxy`. These are the connections of this machine, and of the machines that use it as their router.
//!
//! Two rules keep the client's packets from going in circles. The client's own packets carry a mark and are left alone,
//! which matters for TLS over TCP. Connections to this machine itself are left alone, too. A server on
//! this machine dials targets without the mark, so the rules would lead its connections back into the tunnel.
//!
//! Connections that others make to this machine or through it stay as they are: the rules leave alone replies, and
//! packets that arrive on the interface of a default route.

use std::collections::BTreeSet;
use std::path::Path;

use quictun_control::put;
use quictun_stackd::detour::MARK;
use quictun_tunnel::transparent::DivertMethod;

/// The mark of packets that `tproxy` rules deliver to this machine, whatever their destination.
const TAKEN: u32 = MARK + 1;

/// The routing table of marked packets. Chosen arbitrarily, so that hardly any other program uses it.
const TABLE: u32 = 29_044;

/// Destinations that stay outside the tunnel: this host, local networks, multicast and broadcast.
const BESIDE_V4: &str = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16, 224.0.0.0/3";
const BESIDE_V6: &str = "::/127, fc00::/7, fe80::/10, ff00::/8";

/// Prints the commands for this machine.
pub(super) fn text(method: DivertMethod, port: u16, udp: bool) -> String {
    let v6 = Path::new("/proc/net/if_inet6").exists();
    let routes = |path| std::fs::read_to_string(path).unwrap_or_default();
    let uplinks = uplinks(&routes("/proc/net/route"), &routes("/proc/net/ipv6_route"));
    let mut text = commands(method, (port, udp), v6, &uplinks);
    if !installed("nft") {
        text.insert_str(
            0,
            "# nft is not installed here: the package is called nftables\n",
        );
    }
    text
}

fn installed(program: &str) -> bool {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(Into::into);
    std::env::split_paths(&directories)
        .chain(usual)
        .any(|directory| directory.join(program).exists())
}

/// Returns the interfaces that default routes use, from the kernel's routing tables for IPv4 and IPv6.
fn uplinks(v4: &str, v6: &str) -> BTreeSet<String> {
    let v4 = v4.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let default = words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000");
        words.first().copied().filter(|_| default)
    });
    let v6 = v6.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let any = "00000000000000000000000000000000";
        let default = words.first() == Some(&any) && words.get(1) == Some(&"00");
        words.last().copied().filter(|_| default)
    });
    // An interface name may contain a quotation mark, which would end the string in the shell or in nft.
    let plain = |name: &str| {
        name.chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-@".contains(c))
    };
    let names = v4.chain(v6).filter(|name| *name != "lo" && plain(name));
    names.map(str::to_owned).collect()
}

/// Returns the shell commands. With `udp`, they lead datagrams, too. With `v6`, this machine has IPv6. Packets that arrive on
/// `uplinks` are left alone.
fn commands(
    method: DivertMethod,
    (port, udp): (u16, bool),
    v6: bool,
    uplinks: &BTreeSet<String>,
) -> String {
    let (flag, table) = match method {
        DivertMethod::Redirect => ("redirect", "quictun_redirect"),
        DivertMethod::Tproxy => ("tproxy", "quictun_tproxy"),
    };
    let (what, protocols) = if udp {
        ("TCP connections and UDP", "{ tcp, udp }")
    } else {
        ("TCP connections", "tcp")
    };
    let mut out = String::new();
    let undo = undo(method, table, v6);
    put!(
        out,
        "# Leads {what} to `quictun client --{flag} {port}`: those of this machine, and of others whose router it is.\n# Run as root, once the client runs; the client needs CAP_NET_ADMIN for --tproxy. To undo it: {undo}\nset -e\nnft -f - <<'END'\ntable inet {table} {{ }}\ndelete table inet {table}\n"
    );
    put!(out, "table inet {table} {{\n");
    let uplinks: Vec<String> = uplinks.iter().map(|name| format!("\"{name}\"")).collect();
    let from_uplinks = format!("iifname {{ {} }} return", uplinks.join(", "));
    let others = (!uplinks.is_empty()).then_some(from_uplinks.as_str());
    match method {
        DivertMethod::Redirect => {
            let to = format!("meta l4proto tcp redirect to :{port}");
            chain(
                &mut out,
                "others",
                "type nat hook prerouting priority dstnat",
                v6,
                others,
                &[&to],
            );
            chain(
                &mut out,
                "own",
                "type nat hook output priority -100",
                v6,
                None,
                &[&to],
            );
        }
        DivertMethod::Tproxy => {
            let mut take = vec![format!(
                "meta l4proto {protocols} tproxy ip to :{port} meta mark set {TAKEN:#x} accept"
            )];
            take[0].insert_str(0, "meta nfproto ipv4 ");
            if v6 {
                take.push(format!("meta nfproto ipv6 meta l4proto {protocols} tproxy ip6 to :{port} meta mark set {TAKEN:#x} accept"));
            }
            let take: Vec<&str> = take.iter().map(String::as_str).collect();
            chain(
                &mut out,
                "others",
                "type filter hook prerouting priority mangle",
                v6,
                others,
                &take,
            );
            let mark = format!("meta l4proto {protocols} meta mark set {TAKEN:#x}");
            chain(
                &mut out,
                "own",
                "type route hook output priority mangle",
                v6,
                None,
                &[&mark],
            );
        }
    }
    out.push_str("}\nEND\n");
    if method == DivertMethod::Tproxy {
        for (ip, any) in families(v6) {
            let rule = format!("fwmark {TAKEN:#x} lookup {TABLE}");
            put!(out, "{ip} rule del {rule} 2>/dev/null || true\n");
            put!(out, "{ip} rule add {rule}\n");
            put!(out, "{ip} route replace local {any} dev lo table {TABLE}\n");
        }
    }
    out
}

fn families(v6: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = [("ip", "0.0.0.0/0"), ("ip -6", "::/0")];
    all.into_iter().take(if v6 { 2 } else { 1 })
}

fn undo(method: DivertMethod, table: &str, v6: bool) -> String {
    let mut undo = format!("nft delete table inet {table}");
    if method == DivertMethod::Tproxy {
        for (ip, _) in families(v6) {
            put!(
                undo,
                "; {ip} rule del fwmark {TAKEN:#x} lookup {TABLE}; {ip} route flush table {TABLE}"
            );
        }
    }
    undo
}

fn chain(out: &mut String, name: &str, hook: &str, v6: bool, others: Option<&str>, take: &[&str]) {
    put!(out, "    chain {name} {{\n        {hook}; policy accept;\n");
    let mut leave = vec![
        "ct direction reply return".to_owned(),
        format!("meta mark {MARK:#x} return"),
        "fib daddr type local return".to_owned(),
        format!("ip daddr {{ {BESIDE_V4} }} return"),
    ];
    if v6 {
        leave.push(format!("ip6 daddr {{ {BESIDE_V6} }} return"));
    } else {
        leave.push("meta nfproto ipv6 return".to_owned());
    }
    let leave = leave.iter().map(String::as_str).chain(others);
    for rule in leave.chain(take.iter().copied()) {
        put!(out, "        {rule}\n");
    }
    out.push_str("    }\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_packets_and_local_connections_are_exempted_first() {
        for (method, udp) in [
            (DivertMethod::Redirect, false),
            (DivertMethod::Tproxy, false),
            (DivertMethod::Tproxy, true),
        ] {
            for v6 in [false, true] {
                let uplinks = ["wan0".to_owned()].into();
                let text = commands(method, (7501, udp), v6, &uplinks);
                assert_eq!(text.matches("iifname { \"wan0\" } return").count(), 1);
                for chain in text.split("chain ").skip(1) {
                    let place = |part: &str| {
                        chain
                            .find(part)
                            .unwrap_or_else(|| panic!("{part}: {chain}"))
                    };
                    let taken = place("meta l4proto");
                    for left in [
                        "ct direction reply return",
                        "meta mark 0x71740000 return",
                        "fib daddr type local return",
                        "ip daddr {",
                    ] {
                        assert!(place(left) < taken, "{left}: {chain}");
                    }
                }
                assert_eq!(text.contains("ip -6"), v6 && method == DivertMethod::Tproxy);
                assert_eq!(text.contains("{ tcp, udp }"), udp);
                assert_eq!(text.to_lowercase().contains("udp"), udp);
            }
        }
    }
    #[test]
    fn uplinks_are_the_interfaces_of_default_routes() {
        let v4 = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
            wan0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
            lan0\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n";
        let zero = "00000000000000000000000000000000";
        let v6 = format!(
            "{zero} 00 {zero} 00 fe80 00000400 00000001 00000000 00000003    wan6\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200      lo\n\
             {zero} 00 {zero} 00 fe80 00000400 00000001 00000000 00000003    a\"b\n"
        );
        let found: Vec<String> = uplinks(v4, &v6).into_iter().collect();
        assert_eq!(found, ["wan0", "wan6"]);
        assert!(uplinks("", "damaged\n").is_empty());
    }
}
