"""Loads a page of many objects with headless Chromium: directly, and through each dialect of `quictun client -D`.

    cargo build --release && python3 tests/browser/page.py --programs target/release

Needs Chromium (`apt-get install chromium`) and openssl. Prints a line for each way: the objects that the page has, the
seconds that Chromium took with its start and end, and the flows that it opened. The exit code is 1 if an object is
missing, or if no flow carried the page.
"""

import argparse
import http.server
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time

CHROMIUM = ["chromium", "chromium-browser", "google-chrome"]

# Time limit for the start of a program, and for one page.
START = 20
PATIENCE = 120

PAGE = """<!doctype html><title>objects</title><body>{images}<script>
window.onload = () => {{
  const images = [...document.images];
  document.body.dataset.loaded = images.filter(it => it.complete && it.naturalWidth > 0).length;
}};
</script>"""

OBJECT = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><!-- {padding} --></svg>'

# Size of one object, bytes: about the median of images on the web's pages.
OBJECT_BYTES = 10_000


class Page(http.server.BaseHTTPRequestHandler):
    """Serves the page at `/`, and objects at any other path."""

    protocol_version = "HTTP/1.1"
    objects = 100

    def do_GET(self) -> None:
        if self.path == "/":
            kind = "text/html"
            images = "".join(f'<img src="/{number}.svg">' for number in range(self.objects))
            body = PAGE.format(images=images)
        else:
            kind = "image/svg+xml"
            body = OBJECT.format(padding="x" * OBJECT_BYTES)
        content = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Program:
    """A program of this workspace whose log lines are collected."""

    def __init__(self, path: pathlib.Path, arguments: list[str], home: pathlib.Path) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("QUICTUN")}
        environment |= {"HOME": str(home), "STATE_DIRECTORY": str(home / "state"), "QUICTUN_LOG_FORMAT": "console"}
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [path, *arguments], cwd=home, env=environment, stderr=subprocess.PIPE, text=True
        )
        threading.Thread(target=self.collect, daemon=True).start()

    def collect(self) -> None:
        for line in self.process.stderr:
            self.lines.append(line)

    def wait_for(self, needle: str) -> str:
        until = time.monotonic() + START
        while time.monotonic() < until and self.process.poll() is None:
            for line in self.lines:
                if needle in line:
                    return line
            time.sleep(0.01)
        sys.exit(f"{self.process.args[0]} has not said {needle!r}:\n{''.join(self.lines)}")

    def count(self, needle: str) -> int:
        return sum(needle in line for line in self.lines)


def value(line: str, key: str) -> str:
    return re.search(f'"{key}": "([^"]*)"', line)[1]


def serve(directory: pathlib.Path) -> int:
    """Starts the web server on its own threads, and returns its port."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    make += ["-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", certificate]
    subprocess.run(make, check=True, capture_output=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # The handshake belongs to the thread of the connection, not to the one that accepts.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def load(chromium: str, profile: pathlib.Path, port: int, proxy: str | None) -> tuple[int, float]:
    """Loads the page. Returns the number of objects that it has, and the seconds that Chromium took."""
    flags = ["--headless", "--disable-gpu", "--no-first-run", "--ignore-certificate-errors", "--dump-dom"]
    flags += ["--disable-background-networking", "--disable-component-update", "--virtual-time-budget=60000"]
    flags.append(f"--user-data-dir={profile}")
    if os.geteuid() == 0:
        flags.append("--no-sandbox")
    if proxy:
        # Chromium uses no proxy for loopback addresses by default.
        flags += [f"--proxy-server={proxy}", "--proxy-bypass-list=<-loopback>"]
    else:
        flags.append("--no-proxy-server")
    begin = time.monotonic()
    done = subprocess.run(
        [chromium, *flags, f"https://127.0.0.1:{port}/"], capture_output=True, text=True, timeout=PATIENCE
    )
    elapsed = time.monotonic() - begin
    loaded = re.search('data-loaded="([0-9]+)"', done.stdout)
    if not loaded:
        print(done.stderr[-2000:], file=sys.stderr)
    return int(loaded[1]) if loaded else 0, elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description="Loads a page with headless Chromium through quictun's proxy.")
    parser.add_argument("--programs", type=pathlib.Path, default="target/release", help="directory of `quictun`")
    parser.add_argument("--objects", type=int, default=100, help="objects of the page")
    parser.add_argument("--times", type=int, default=1, help="how often each way is taken, in turns")
    arguments = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if not chromium:
        sys.exit("chromium is missing: apt-get install chromium")
    quictun = (arguments.programs / "quictun").resolve()
    Page.objects = arguments.objects
    with tempfile.TemporaryDirectory(prefix="quictun-browser-", ignore_cleanup_errors=True) as name:
        home = pathlib.Path(name)
        port = serve(home)
        target = f"127.0.0.1:{port}"
        server = Program(quictun, ["server", "--listen", "127.0.0.1:0", "--http", "off", "--allow", target], home)
        line = server.wait_for("Server endpoint start up successful")
        flags = ["--server", value(line, "listen address"), "--pin", value(line, "pin")]
        flags += ["--psk-file", "state/client.psk", "--http", "off", "-D", "127.0.0.1:0"]
        client = Program(quictun, ["client", *flags], home)
        line = client.wait_for("Client endpoint start up successful")
        proxy = value(line, "listen address").removeprefix("tcp:")
        client.wait_for("connected to server endpoint")
        try:
            kept = run(chromium, home, port, proxy, server, arguments)
        finally:
            for program in (client, server):
                program.process.terminate()
                program.process.wait()
    sys.exit(0 if kept else 1)


def run(
    chromium: str, home: pathlib.Path, port: int, proxy: str, server: Program, arguments: argparse.Namespace
) -> bool:
    ways = [("direct", None), ("SOCKS5", f"socks5://{proxy}"), ("HTTP CONNECT", f"http://{proxy}")]
    kept = True
    for number in range(arguments.times):
        for name, through in ways:
            before = server.count("flow closed")
            profile = home / f"{name}-{number}".replace(" ", "-")
            loaded, elapsed = load(chromium, profile, port, through)
            # The last flows end with Chromium, a moment before their lines are in the log.
            until = time.monotonic() + START
            while through and server.count("flow closed") == before and time.monotonic() < until:
                time.sleep(0.05)
            flows = server.count("flow closed") - before
            print(f"{name:12}  {loaded:4} of {arguments.objects} objects  {elapsed:6.2f} s  {flows:3} flows", flush=True)
            kept = kept and loaded == arguments.objects and (flows > 0) == bool(through)
    return kept


if __name__ == "__main__":
    main()
