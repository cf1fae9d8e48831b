//! Programs that write CONNECT by themselves, through `quictun client -D`.

use std::io::{Read as _, Write as _};

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::connection::Endpoint;
use quictun_testbed::isolation::with_programs;
use quictun_testbed::program::{command, installed, run};
use quictun_testbed::tunnel::Client;

use crate::proxy::{ProxyServer, curl, serve_http};

/// Node's `http.request` sends the address of the proxy as `Host`.
const NODE: &str = r#"
const http = require("http");
const [port, target] = process.argv.slice(1);
const request = http.request({ host: "127.0.0.1", port, method: "CONNECT", path: target });
request.on("connect", (answer, socket) => {
  if (answer.statusCode !== 200) { console.log(answer.statusCode); process.exit(1); }
  socket.on("data", (data) => process.stdout.write(data));
  socket.on("end", () => process.exit(0));
  socket.write("GET /node HTTP/1.0\r\n\r\n");
});
request.on("response", (answer) => { console.log(answer.statusCode); process.exit(1); });
request.on("error", (error) => { console.log(error); process.exit(1); });
request.end();
"#;

const PYTHON: &str = r#"
import http.client, sys
port, target = sys.argv[1:]
host, _, target_port = target.rpartition(":")
connection = http.client.HTTPConnection("127.0.0.1", int(port))
connection.set_tunnel(host, int(target_port), headers={"Content-Length": "0"})
connection.request("GET", "/python")
sys.stdout.write(connection.getresponse().read().decode())
"#;

/// A client with a proxy, and a web server that may be reached.
struct ProxiedWebServer {
    client: Client,
    web: String,
    _server: ProxyServer,
    _web: Application,
}

impl ProxiedWebServer {
    fn new() -> Result<Self> {
        let web = Application::tcp(serve_http)?;
        let server = ProxyServer::new(&[&web.target()])?;
        Ok(Self {
            client: server.client(&["-D", "127.0.0.1:0"])?,
            web: web.target().trim_start_matches("tcp:").to_owned(),
            _server: server,
            _web: web,
        })
    }

    fn proxy(&self) -> Result<String> {
        Ok(self.client.forward.port()?.to_string())
    }

    /// Sends these bytes to the proxy, and then a request to the web server. Returns everything that comes back.
    fn exchange(&self, connect: &str) -> Result<String> {
        let endpoint: &Endpoint = &self.client.forward;
        let mut connection = endpoint.connect()?;
        write!(connection, "{connect}GET /raw HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        connection
            .read_to_string(&mut answer)
            .context("an answer")?;
        Ok(answer)
    }
}

#[test]
fn node_python_and_curl_connect_as_they_write_it() -> Result<()> {
    with_programs(|| {
        let site = ProxiedWebServer::new()?;
        let port = site.proxy()?;
        for (name, package, flag, script, said) in [
            ("node", "nodejs", "-e", NODE, "GET /node"),
            ("python3", "python3", "-c", PYTHON, "GET /python"),
        ] {
            let output =
                run(command(installed(name, package)?).args([flag, script, &port, &site.web]))?;
            ensure!(output.contains(said), "{output}");
        }
        let (proxy, url) = (
            format!("http://127.0.0.1:{port}"),
            format!("http://{}/curl", site.web),
        );
        // curl then sends its default Host, another one, or none at all to the proxy.
        for header in [
            "X: y",
            "Host: 127.0.0.1:1080",
            "Host;",
            "Content-Length: 0",
            "Host:",
        ] {
            let through = [
                "--proxytunnel",
                "--proxy-header",
                header,
                "--proxy",
                &proxy,
                &url,
            ];
            let (code, body, errors) = curl(&through)?;
            ensure!(
                (code, body.as_str()) == (0, "GET /curl HTTP/1.1"),
                "{header}: {code} {body} {errors}"
            );
        }
        Ok(())
    })
}

#[test]
fn a_request_without_host_or_with_bare_lf_is_served_and_one_with_content_is_refused() -> Result<()>
{
    let site = ProxiedWebServer::new()?;
    let web = &site.web;
    for connect in [
        format!("CONNECT {web} HTTP/1.1\r\n\r\n"),
        format!("CONNECT {web} HTTP/1.1\n\n"),
        format!("\r\nCONNECT {web} HTTP/1.0\r\nHost: other.example\r\n\r\n"),
    ] {
        let answer = site.exchange(&connect)?;
        ensure!(answer.starts_with("HTTP/1.1 200 "), "{connect}: {answer}");
        ensure!(answer.ends_with("GET /raw HTTP/1.0"), "{connect}: {answer}");
    }
    for (fields, status) in [
        ("Content-Length: 5", "400"),
        ("Transfer-Encoding: chunked", "400"),
        ("Origin: http://page.example", "403"),
    ] {
        let answer = site.exchange(&format!("CONNECT {web} HTTP/1.1\r\n{fields}\r\n\r\n"))?;
        ensure!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{fields}: {answer}"
        );
        ensure!(!answer.contains("GET /raw"), "{fields}: {answer}");
    }
    Ok(())
}
