package worker

import (
	"io"
	"net"
	"testing"
	"time"
)

// Its writer was told that what was held is written. If the server then gets half of it, or nothing, all that follows
// would be read as something else.
func TestAConnectionThatCannotWriteWhatItHeldBackIsClosed(t *testing.T) {
	mine, peer := net.Pipe()
	defer peer.Close()
	k := &corked{Conn: mine}
	k.hold(1)
	if n, err := k.Write([]byte("SUB a 1\r\n")); n != 9 || err != nil {
		t.Fatalf("what is held back counts as %d bytes written, %v", n, err)
	}
	k.hold(-1)
	if err := k.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := k.Write([]byte("SUB b 2\r\n")); n != 0 || err == nil {
		t.Errorf("%d bytes count as written, %v", n, err)
	}
	_ = peer.SetReadDeadline(time.Now().Add(time.Minute)) // it fails where the other end is closed
	if n, err := peer.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the peer reads %d bytes, %v: want the end", n, err)
	}
}
