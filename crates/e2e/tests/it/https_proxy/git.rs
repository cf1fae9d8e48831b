//! git through the HTTPS proxy.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::isolation::with_programs;
use quictun_testbed::program::{command, installed, run};

use super::{HttpsProxyServer, USER, web};

/// git in a home of its own, where it has made the repository `first.git` for other hosts to clone.
pub(crate) struct Git<'a>(&'a Path);

impl<'a> Git<'a> {
    pub(crate) fn new(home: &'a Path) -> Result<Self> {
        let git = Self(home);
        git.run("init --quiet first")?;
        git.run(
            "-C first -c user.name=a -c user.email=a@example.net commit --quiet --allow-empty -m one",
        )?;
        git.run("clone --quiet --bare first first.git")?;
        git.run("-C first.git update-server-info")?;
        Ok(git)
    }

    fn run(&self, arguments: &str) -> Result<String> {
        let mut git = command(installed("git", "git")?);
        git.current_dir(self.0).env("HOME", self.0);
        git.env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0");
        for name in ["GIT_SSL_CAINFO", "no_proxy", "NO_PROXY"] {
            git.env_remove(name);
        }
        run(git.args(arguments.split_whitespace()))
    }

    /// Clones from `host` through a proxy, with settings of git's configuration. Returns whether all of it has arrived.
    pub(crate) fn clone(&self, host: &str, proxy: &str, settings: &[&str]) -> Result<()> {
        let settings = settings.iter().map(|setting| format!("-c {setting} "));
        let settings: String = settings.collect();
        self.run(&format!(
            "{settings} -c http.proxy={proxy} clone --quiet https://{host}/first.git second"
        ))?;
        let cloned = self.run("-C second log --format=%s")?;
        ensure!(cloned == "one\n", "{cloned}");
        Ok(())
    }
}

#[test]
fn git_clones_by_https_through_the_proxy() -> Result<()> {
    with_programs(|| {
        let site = HttpsProxyServer::new(&["--https-proxy"], &["127.0.0.1:*"])?;
        let home = site.home.path();
        let git = Git::new(home)?;
        let [certificate, key] =
            ["server.crt", "server.key"].map(|name| home.join("state").join(name));
        let web = web(home, &certificate, &key)?;
        let (_, port) = site.address.rsplit_once(':').context("no port")?;
        let resolve = format!("http.curloptResolve=server:{port}:127.0.0.1");
        let settings = [
            "http.sslVerify=false",
            &resolve,
            "http.proxySSLCAInfo=state/server.crt",
        ];
        let clone = |secret: &str| {
            let proxy = format!("https://{USER}:{secret}@server:{port}");
            git.clone(&format!("127.0.0.1:{}", web.port), &proxy, &settings)
        };
        let wrong = clone("wrong");
        ensure!(wrong.is_err_and(|why| format!("{why:#}").contains("407")));
        ensure!(
            web.program.count("GET ") == 0,
            "a wrong login reached the target"
        );
        clone(&site.secret()?)
    })
}
