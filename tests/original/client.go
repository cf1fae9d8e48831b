package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/quic-go/quic-go"
)

// Dials once; a connection that is lost stays lost (B5).
func runClient(listen, server string, token []byte, split, stall bool) error {
	if server == "" {
		return errors.New("-server is missing")
	}
	config := &quic.Config{KeepAlivePeriod: 15 * time.Second}
	connection, err := quic.DialAddr(context.Background(), server, clientTLS(), config)
	if err != nil {
		return fmt.Errorf("dialling %s: %w", server, err)
	}
	network, address := networkAndAddress(listen)
	listener, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	announce(network, listener.Addr())
	for {
		application, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("accepting applications: %w", err)
		}
		if stall {
			go hang(connection, application, token)
			stall = false
			continue
		}
		go carry(connection, application, token, split)
	}
}

func carry(connection *quic.Conn, application net.Conn, token []byte, split bool) {
	defer application.Close()
	stream, err := connection.OpenStreamSync(context.Background())
	if err != nil {
		log.Printf("opening a stream: %v", err)
		return
	}
	defer stream.Close()
	if err := request(stream, token, split); err != nil {
		log.Printf("stream %d: handshake error! %v", stream.StreamID(), err)
		return
	}
	bridge(application, stream)
}

// Sends half of a token and waits for the server's patience to end (B3).
func hang(connection *quic.Conn, application net.Conn, token []byte) {
	defer application.Close()
	stream, err := connection.OpenStreamSync(context.Background())
	if err != nil {
		log.Printf("opening a stream: %v", err)
		return
	}
	if _, err := stream.Write(token[:len(token)/2]); err != nil {
		log.Printf("stream %d: sending half a token: %v", stream.StreamID(), err)
		return
	}
	_, err = io.ReadFull(stream, make([]byte, 1))
	log.Printf("stream %d: after half a token: %v", stream.StreamID(), err)
}

// Sends the token and waits for its one-byte answer; no payload leaves before that.
func request(stream *quic.Stream, token []byte, split bool) error {
	block := padded(token)
	if split {
		// The two parts travel in packets of their own only where the first has left before the second
		// is there.
		half := len(token) / 2
		if _, err := stream.Write(block[:half]); err != nil {
			return err
		}
		time.Sleep(30 * time.Millisecond)
		block = block[half:]
	}
	if _, err := stream.Write(block); err != nil {
		return err
	}
	ack := make([]byte, 1)
	if _, err := io.ReadFull(stream, ack); err != nil {
		return err
	}
	switch ack[0] {
	case ackOpened:
		return nil
	case ackBadToken:
		return errors.New("the server cannot parse the token")
	case ackUnreachable:
		return errors.New("the server cannot reach the application")
	default:
		return fmt.Errorf("unknown ack %#x", ack[0])
	}
}
