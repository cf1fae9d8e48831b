//! Programs that people have, through the HTTPS proxy: they trust the authority, and nothing else of quictun.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quictun_testbed::connection::Connection;
use quictun_testbed::program::{command, installed, run};

use super::*;
use crate::https_proxy::git::Git;
use crate::https_proxy::web;
use crate::proxy::read_head;

const BROWSER: &str = include_str!("browser.js");

/// A host whose name only the server knows.
const SITE: &str = "www.example.org";

/// A browser with a home of its own, which trusts an authority.
struct Chromium<'a> {
    home: &'a Path,
    script: &'a str,
}

impl Chromium<'_> {
    /// Adds a certificate to those that Chromium trusts, as an authority (`C`) or as itself (`P`).
    fn trust(&self, certificate: &Path, flags: &str) -> Result<()> {
        let database = self.home.join(".pki/nssdb");
        let nss = |arguments: &[&str]| {
            let mut certutil = command(installed("certutil", "libnss3-tools")?);
            run(certutil.arg("-d").arg(&database).args(arguments))
        };
        if !database.exists() {
            fs::create_dir_all(&database)?;
            nss(&["-N", "--empty-password"])?;
        }
        let file = certificate.display().to_string();
        nss(&["-A", "-n", &file, "-t", &format!("{flags},,"), "-i", &file])?;
        Ok(())
    }

    /// Loads a page. Each challenge of the proxy gets the next login.
    fn load(&self, url: &str, logins: &[&str]) -> Result<Value> {
        let script = BASE64_STANDARD.encode(self.script);
        let flags = [
            "--headless",
            "--no-sandbox",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            &format!("--user-data-dir={}", self.home.join("profile").display()),
            // Chromium takes no script from a file.
            &format!("--proxy-pac-url=data:application/x-ns-proxy-autoconfig;base64,{script}"),
            &format!("--host-resolver-rules=MAP {SITE} ~NOTFOUND"),
        ];
        let mut node = command(installed("node", "nodejs")?);
        node.env("HOME", self.home).args(["-e", BROWSER]);
        node.arg(installed("chromium", "chromium")?);
        node.args([url, &flags.join("\n")]).args(logins);
        Ok(serde_json::from_str(run(&mut node)?.trim())?)
    }
}

/// Makes a login with a rule. Returns the proxy's URL, and the script for browsers.
fn invite(server: &mut Served, rules: &[&str]) -> Result<(String, String)> {
    let mut command = server.home.command(&Machine::here(), "quictun")?;
    let address = format!("{NAME}:{}", SERVER.port());
    command.args(["invite", "browser", "--proxy", "--address", &address]);
    for rule in rules {
        command.args(["--allow", rule]);
    }
    let url = run(&mut command)?.trim().to_owned();
    let script = fs::read_to_string(server.home.path().join("browser.pac"))?;
    server.program.signal(Signal::HUP)?;
    server.program.wait_for("configuration reloaded", SOON)?;
    Ok((url, script))
}

/// Writes the root of Pebble's certificates. Each Pebble makes its own.
fn write_root(pebble: &Pebble, path: &Path) -> Result<()> {
    let mut curl = command(installed("curl", "curl")?);
    curl.args(["--silent", "--fail", "--noproxy", "*", "--cacert"]);
    curl.arg(&pebble.roots).arg("--output").arg(path);
    run(curl.arg("https://localhost:15000/roots/0"))?;
    Ok(())
}

// The certificate is renewed meanwhile.
#[test]
fn chromium_and_curl_trust_the_certificate_and_a_download_outlives_it() -> Result<()> {
    isolated(|| {
        for (program, package) in [("chromium", "chromium"), ("certutil", "libnss3-tools")] {
            installed(program, package)?;
        }
        let home = Home::new()?;
        // Long enough for a browser that starts slowly.
        let pebble = Pebble::start(home.path(), Duration::from_secs(45))?;
        let mut server = Served::with_authority(home, pebble::DIRECTORY, &pebble.roots, &[])?;
        let first = next_certificate(None)?;

        write_pair(&server.home, SITE, 2100)?;
        let [certificate, key] = ["web.crt", "web.key"].map(|name| server.home.path().join(name));
        let site = web(server.home.path(), &certificate, &key)?;
        fs::write(
            server.home.path().join("page.html"),
            "<p>a page of the site",
        )?;
        let stop = Arc::new(AtomicBool::new(false));
        let source = endless(Arc::clone(&stop))?;
        let site_rule = format!("{SITE}:{}", site.port);
        let source_rule = source.target().trim_start_matches("tcp:").to_owned();
        let (proxy, script) = invite(&mut server, &[&site_rule, &source_rule])?;
        let root = server.home.path().join("root.crt");
        write_root(&pebble, &root)?;

        let got = server.home.path().join("download");
        let mut curl = command(installed("curl", "curl")?);
        curl.args(["--silent", "--show-error", "--noproxy", "", "--proxytunnel"]);
        curl.args(["--limit-rate", "1M", "--proxy", &proxy, "--proxy-cacert"]);
        curl.arg(&root).arg("--output").arg(&got);
        let mut download = Program::start("curl", curl.arg(format!("http://{source_rule}/")))?;

        let browser = Chromium {
            home: server.home.path(),
            script: &script,
        };
        browser.trust(&root, "C")?;
        browser.trust(&certificate, "P")?;
        let page = format!("https://{site_rule}/page.html");
        let refused = browser.load(&page, &[])?;
        let challenge = &refused["challenges"][0];
        ensure!(
            challenge["source"] == "Proxy" && challenge["scheme"] == "basic",
            "{refused}"
        );
        ensure!(refused["error"].is_string(), "{refused}");
        ensure!(
            site.program.count("GET ") == 0,
            "the site was reached without a login"
        );
        let (_, login) = proxy.split_once("//").context("a URL")?;
        let (login, _) = login.split_once('@').context("a login")?;
        let shown = browser.load(&page, &["browser:wrong", login])?;
        ensure!(shown["text"] == "a page of the site", "{shown}");
        let at = |number: usize| {
            shown["challenges"][number]["at"]
                .as_u64()
                .unwrap_or_default()
        };
        ensure!(
            at(1) >= at(0) + 1000,
            "a wrong login is answered late: {shown}"
        );
        ensure!(
            shown["challenges"].as_array().map(Vec::len) == Some(2),
            "{shown}"
        );
        // HTTP/2: the flow is a later stream of the connection on which logins were asked for.
        let is_later =
            |line: &String| line.contains("flow closed") && line.contains("\"Stream-ID\": 8");
        deadline::until("the end of the flow", SOON, || {
            server.program.lines().iter().any(is_later)
        })?;

        next_certificate(Some(&first))?;
        ensure!(download.ended()?.is_none(), "the download has ended");
        stop.store(true, Ordering::Relaxed);
        ensure!(download.wait_end(SOON)?.success());
        Payload::new(1, fs::metadata(&got)?.len()).read_to_end_of(&mut fs::File::open(&got)?)?;
        source.outcome(SOON)
    })
}

#[test]
fn git_trusts_the_certificate_and_clones() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        let pebble = Pebble::start(home.path(), Duration::from_hours(24))?;
        let mut server = Served::with_authority(home, pebble::DIRECTORY, &pebble.roots, &[])?;
        next_certificate(None)?;

        write_pair(&server.home, SITE, 2100)?;
        let directory = server.home.path().to_owned();
        let git = Git::new(&directory)?;
        let [certificate, key] = ["web.crt", "web.key"].map(|name| directory.join(name));
        let site = web(&directory, &certificate, &key)?;
        let (proxy, _) = invite(&mut server, &[&format!("{SITE}:{}", site.port)])?;
        write_root(&pebble, &directory.join("root.crt"))?;

        let clone = |host: &str, proxy: &str, root: &str| {
            let root = format!("http.proxySSLCAInfo={root}");
            let host = format!("{host}:{}", site.port);
            git.clone(&host, proxy, &["http.sslCAInfo=web.crt", &root])
        };
        let fails = |found: Result<()>, words: &str| match found {
            Err(why) if format!("{why:#}").contains(words) => Ok(()),
            other => bail!("{words}: {other:?}"),
        };
        fails(clone(SITE, &proxy, "web.crt"), "certificate")?;
        let wrong = proxy.replacen("browser:", "browser:0", 1);
        fails(clone(SITE, &wrong, "root.crt"), "407")?;
        fails(clone("localhost", &proxy, "root.crt"), "403")?;
        ensure!(
            site.program.count("GET ") == 0,
            "the site was reached by a refused request"
        );
        clone(SITE, &proxy, "root.crt")
    })
}

/// Answers an HTTP request with bytes that end when asked to.
fn endless(stop: Arc<AtomicBool>) -> Result<Application> {
    Application::tcp(move |mut connection: Connection| {
        read_head(&mut connection)?;
        connection.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
        Payload::new(1, u64::MAX).write_until(&mut connection, &stop)?;
        connection.finish()
    })
}
