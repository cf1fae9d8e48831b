"""A foreign client of a server of ours: `main.py CASE --server HOST:PORT`, see README.md."""

import argparse

import cases
import wire


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=sorted(cases.ALL), help="what to do")
    parser.add_argument("--server", type=address, required=True, metavar="HOST:PORT")
    parser.add_argument("--target", help="where flows lead")
    parser.add_argument("--alpn", default=wire.NATIVE, choices=[wire.NATIVE, wire.COMPAT])
    parser.add_argument("--psk-file", help="file with a secret shared with the server")
    parser.add_argument("--login", help="USER:PASSWORD for a proxy")
    parser.add_argument("--authority", help="file with the certificate that a proxy has")
    parser.add_argument("--output", help="file for a download")
    parser.add_argument("--count", type=int, help="how many flows, streams or strangers")
    parser.add_argument("--bytes", type=int, default=1_000_000, help="what an echo carries")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long a stranger waits")
    arguments = parser.parse_args()
    cases.ALL[arguments.case](arguments)


if __name__ == "__main__":
    main()
