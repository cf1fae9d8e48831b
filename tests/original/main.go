// Command original behaves like quic-tun v0.0.3 to v0.0.5 towards its peer, faults included, so that the
// tests can prove that quictun works with what people have deployed. It was written from observed facts
// (docs/PROTOCOL.md, part "quic-tun") and shares no code with quic-tun.
//
//	original server [-listen ADDR] [-streams N]
//	original client -server ADDR -token TOKEN [-listen NETWORK:ADDR] [-split] [-stall]
//
// Either prints one line, `listening NETWORK ADDRESS`, when it can be used. It ends when its standard
// input does, so that it never outlives the test that started it.
package main

import (
	"bytes"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
)

const (
	protocol    = "quic-tun"
	tokenLength = 512

	ackOpened      byte = 0x01
	ackBadToken    byte = 0x02
	ackUnreachable byte = 0x03
)

func main() {
	log.SetFlags(log.Lmicroseconds)
	if len(os.Args) < 2 {
		fail("usage: original server|client [flags]")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	listen := flags.String("listen", "", "address to listen on: ADDR of a server, NETWORK:ADDR of a client")
	streams := flags.Int64("streams", 0, "server: streams that a client may have open at once (0: the library's 100)")
	server := flags.String("server", "", "client: UDP address of the server")
	token := flags.String("token", "", "client: token sent for every connection")
	split := flags.Bool("split", false, "client: send the token in two parts, as bursts of opens do")
	stall := flags.Bool("stall", false, "client: for the first application send half of the token and no more")
	role := os.Args[1]
	if err := flags.Parse(os.Args[2:]); err != nil {
		fail(err.Error())
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()

	var err error
	switch role {
	case "server":
		err = runServer(or(*listen, "127.0.0.1:0"), *streams)
	case "client":
		err = runClient(or(*listen, "tcp:127.0.0.1:0"), *server, []byte(*token), *split, *stall)
	default:
		err = fmt.Errorf("unknown role %q: server or client", role)
	}
	if err != nil {
		fail(err.Error())
	}
}

// The original's TLS: an RSA-1024 key made at every start, whose certificate has no name and no time.
func serverTLS() (*tls.Config, error) {
	certificate, err := namelessCertificate()
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{protocol}}, nil
}

// The original verifies nobody by default.
func clientTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}
}

// One line's beginning tells a test where to connect.
func announce(network string, address fmt.Stringer) {
	fmt.Printf("listening %s %s\n", network, address)
}

// Splits `network:address` at the first colon.
func networkAndAddress(target string) (network, address string) {
	network, address, _ = strings.Cut(target, ":")
	return strings.ToLower(network), address
}

func padded(token []byte) []byte {
	block := make([]byte, tokenLength)
	copy(block, token)
	return block
}

func unpadded(block []byte) string {
	return string(bytes.ReplaceAll(block, []byte{0}, nil))
}

func or(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, "original: "+message)
	os.Exit(1)
}
