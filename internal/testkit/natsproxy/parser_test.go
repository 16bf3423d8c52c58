package natsproxy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const info = "INFO {\"server_id\":\"x\"}\r\n"

var ack = msg("", `{"stream":"KV_id", "seq":123456}`)

// msg returns a message as a server sends it, with a header if there is one.
func msg(header, payload string) string {
	if header == "" {
		return fmt.Sprintf("MSG a.b 1 reply %d\r\n%s\r\n", len(payload), payload)
	}
	return fmt.Sprintf("HMSG a.b 1 %d %d\r\n%s%s\r\n", len(header), len(header)+len(payload), header, payload)
}

func TestOnlyAcknowledgementsAreSwallowed(t *testing.T) {
	const header = "NATS/1.0\r\na: b\r\n\r\n"
	const ack = `{"stream":"KV_id","seq":7}`
	for _, tc := range []struct {
		law, said string
		drops     bool
	}{
		{"an acknowledgement", msg("", ack), true},
		{"one with a header", msg(header, ack), true},
		{"of a duplicate, in a domain", msg("", `{"stream":"KV_id","domain":"hub","seq":7,"duplicate":true}`), true},
		{"in any order", msg("", ` { "seq": 7, "stream": "KV_id" } `), true},
		{"tabs and no reply", "MSG\ta.b\t1\t26\r\n" + ack + "\r\n", false}, // no server says so
		{"a refusal", msg("", `{"error":{"code":400,"err_code":10071},"stream":"KV_id","seq":0}`), false},
		{"a refusal with a sequence", msg("", `{"error":{"code":400},"stream":"KV_id","seq":7}`), false},
		{"no stream", msg("", `{"seq":7}`), false},
		{"no sequence", msg("", `{"stream":"KV_id"}`), false},
		{"an ID", msg("", "7"), false},
		{"nothing", msg("", ""), false},
		{"a header only", msg("NATS/1.0 503\r\n\r\n", ""), false},
		{"an array", msg("", "["+ack+"]"), false},
		{"half of one", msg("", ack[:20]), false},
		{"one in a header", msg(ack, "7"), false},
		{"one deep in a large message", msg("", strings.Repeat("x", 2*ackMax)+"MSG a 1 26\r\n"+ack+"\r\n"), false},
		{"an error", "-ERR 'Authorization Violation'\r\n", false},
		{"an empty line", "\r\n", false},
		{"INFO as large as a cluster", "INFO {\"x\":\"" + strings.Repeat("y", 100_000) + "\"}\r\n", false},
		{"no sizes", "MSG a\r\n" + ack + "\r\n", false},
		{"a size that is none", "MSG a 1 -26\r\n" + ack + "\r\n", false},
		{"a size beyond all", "MSG a 1 99999999999999999999\r\n" + ack + "\r\n", false},
		{"more header than message", "HMSG a 1 30 26\r\n" + ack + "\r\n", false},
		{"no NATS at all", strings.Repeat("\x16\x03\x01", lineMax), false},
	} {
		t.Run(tc.law, func(t *testing.T) {
			stream := info + "PING\r\n" + tc.said + "PONG\r\n+OK\r\n"
			want := stream
			if tc.drops {
				want = info + "PING\r\nPONG\r\n+OK\r\n"
			}
			for _, size := range []int{1, 2, 7, 1000, len(stream)} {
				if size < 1000 && len(stream) > 1<<17 {
					continue
				}
				got, drops := through(stream, size, All)
				if got != want || drops != tc.drops {
					t.Fatalf("in pieces of %d: %.300q, want %.300q", size, got, want)
				}
			}
		})
	}
}

// Whatever the pieces, the same passes; and all of it if nothing is dropped.
func FuzzParser(f *testing.F) {
	f.Add([]byte(info+ack+msg("h", "p")), uint8(3))
	f.Add([]byte(msg("", strings.Repeat("x", 2*ackMax))+ack), uint8(100))
	f.Add([]byte("MSG a 1 5\r\nab"), uint8(1))
	f.Add([]byte("HMSG a 1 9 5\r\nab"), uint8(1))
	none := func(string, uint64) bool { return false }
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		stream = stream[:min(len(stream), 3*ackMax)] // a line in pieces costs its square
		if got, _ := through(string(stream), 1+int(size), none); got != string(stream) {
			t.Errorf("nothing dropped: %q became %q", stream, got)
		}
		whole, _ := through(string(stream), len(stream)+1, All)
		if got, _ := through(string(stream), 1+int(size), All); got != whole {
			t.Errorf("%q in pieces of %d: %q, at once %q", stream, 1+int(size), got, whole)
		}
	})
}

// through returns what passes of a stream that is read in pieces, and whether
// anything was dropped.
func through(stream string, size int, drop func(string, uint64) bool) (passed string, dropped bool) {
	p := parser{drops: func(stream string, seq uint64) bool {
		is := drop(stream, seq)
		dropped = dropped || is
		return is
	}}
	var out bytes.Buffer
	for piece := range slices.Chunk([]byte(stream), size) {
		out.Write(p.feed(piece))
	}
	out.Write(p.feed(nil))
	return out.String(), dropped
}
