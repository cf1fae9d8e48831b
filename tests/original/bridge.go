package main

import (
	"io"
	"log"
	"net"
	"sync"

	"github.com/quic-go/quic-go"
)

// Copies both ways. The first direction to end closes the application's connection altogether, so that
// what the other direction still carries is lost (B7). Nobody ever stops reading a stream on purpose,
// so that its place among the hundred is not given back (B8).
func bridge(application net.Conn, stream *quic.Stream) {
	var directions sync.WaitGroup
	directions.Go(func() { copyAndClose(application, stream, application, stream) })
	directions.Go(func() { copyAndClose(stream, application, application, stream) })
	directions.Wait()
	log.Printf("stream %d: closed", stream.StreamID())
}

func copyAndClose(to io.Writer, from io.Reader, application net.Conn, stream *quic.Stream) {
	// Read and Write only: a plain loop, as the original's, without the shortcuts of sockets.
	_, err := io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
	if err != nil {
		log.Printf("stream %d: copying: %v", stream.StreamID(), err)
	}
	_ = stream.Close()
	_ = application.Close()
}
