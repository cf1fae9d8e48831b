"""A download by libcurl through an HTTPS proxy by HTTP/2. The curl of many systems is too old for that."""

import re

import pycurl

# CURLPROXY_HTTPS2, for which pycurl has no name.
HTTPS2 = 3


class Download:
    """What came of one request: curl's notes about the proxy, and the body of the target's answer."""

    def __init__(
        self, server: tuple[str, int], target: str, login: str, authority: str, patience: float
    ) -> None:
        self.notes = ""
        self.curl = pycurl.Curl()
        # The name in the server's own certificate.
        host, port = server
        self.curl.setopt(pycurl.RESOLVE, [f"server:{port}:{host}"])
        self.curl.setopt(pycurl.PROXY, f"https://server:{port}")
        self.curl.setopt(pycurl.PROXYTYPE, HTTPS2)
        self.curl.setopt(pycurl.PROXY_CAINFO, authority)
        self.curl.setopt(pycurl.PROXYUSERPWD, login)
        self.curl.setopt(pycurl.HTTPPROXYTUNNEL, True)
        self.curl.setopt(pycurl.NOPROXY, "")
        self.curl.setopt(pycurl.URL, f"http://{target}/")
        self.curl.setopt(pycurl.TIMEOUT, int(patience))
        # curl tells the proxy's answer by HTTP/2 nowhere else.
        self.curl.setopt(pycurl.VERBOSE, True)
        self.curl.setopt(pycurl.DEBUGFUNCTION, self.note)

    def note(self, kind: int, text: bytes) -> None:
        if kind == pycurl.INFOTYPE_TEXT:
            self.notes += text.decode()

    def run(self, output: str) -> str | None:
        """Writes the body to a file. Returns curl's error."""
        with open(output, "wb") as file:
            self.curl.setopt(pycurl.WRITEDATA, file)
            try:
                self.curl.perform()
            except pycurl.error as error:
                return error.args[1]

    def protocol(self) -> str | None:
        """The protocol that curl and the proxy have chosen."""
        found = re.search(r"CONNECT: '(\S+)' negotiated", self.notes)
        return found and found[1]

    def status(self) -> str | None:
        """The proxy's answer to CONNECT."""
        found = re.search(r"CONNECT Response Status (\d+)", self.notes)
        return found and found[1]
