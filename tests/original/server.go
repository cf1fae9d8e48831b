package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/quic-go/quic-go"
)

func runServer(listen string, streams int64) error {
	config, err := serverTLS()
	if err != nil {
		return err
	}
	udp, err := net.ListenPacket("udp", listen)
	if err != nil {
		return err
	}
	transport := &quic.Transport{
		Conn: udp,
		// quic-go v0.26 asked every new client to come back with a token: Retry, one round trip more.
		VerifySourceAddress: func(net.Addr) bool { return true },
	}
	listener, err := transport.Listen(config, &quic.Config{MaxIncomingStreams: streams})
	if err != nil {
		return err
	}
	announce("udp", udp.LocalAddr())
	for {
		connection, err := listener.Accept(context.Background())
		if err != nil {
			return fmt.Errorf("accepting connections: %w", err)
		}
		log.Printf("connection from %s", connection.RemoteAddr())
		go serve(connection)
	}
}

// Opens are handled one after the other: whoever dials slowly, or cannot be told of a failure, holds up
// everyone behind (B1, B2, B3).
func serve(connection *quic.Conn) {
	for {
		stream, err := connection.AcceptStream(context.Background())
		if err != nil {
			log.Printf("connection from %s ended: %v", connection.RemoteAddr(), err)
			return
		}
		if target := open(stream); target != nil {
			go bridge(target, stream)
		}
	}
}

func open(stream *quic.Stream) net.Conn {
	token, err := receiveToken(stream)
	if err != nil {
		log.Printf("stream %d: no token: %v", stream.StreamID(), err)
		return nil
	}
	network, address := networkAndAddress(token)
	if address == "" {
		log.Printf("stream %d: bad token %q", stream.StreamID(), token)
		acknowledgeForEver(stream, ackBadToken)
		return nil
	}
	target, err := net.Dial(network, address)
	if err != nil {
		log.Printf("stream %d: dialling: %v", stream.StreamID(), err)
		acknowledgeForEver(stream, ackUnreachable)
		return nil
	}
	if _, err := stream.Write([]byte{ackOpened}); err != nil {
		log.Printf("stream %d: acknowledging: %v", stream.StreamID(), err)
		_ = target.Close()
		return nil
	}
	log.Printf("stream %d: opened %s", stream.StreamID(), token)
	return target
}

// Reads the 512 bytes of a token but keeps only what came last, so that a token in two frames is cut (B4).
func receiveToken(stream io.Reader) (string, error) {
	block := make([]byte, tokenLength)
	last := 0
	for received := 0; received < tokenLength; received += last {
		n, err := stream.Read(block[:tokenLength-received])
		if n == 0 && err != nil {
			return "", err
		}
		last = n
	}
	return unpadded(block[:last]), nil
}

// Writes the same failure byte by byte until the client stops reading, or its window is full: then it waits (B1).
func acknowledgeForEver(stream io.Writer, ack byte) {
	for {
		if _, err := stream.Write([]byte{ack}); err != nil {
			return
		}
	}
}
