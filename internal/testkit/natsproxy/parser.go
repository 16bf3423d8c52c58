package natsproxy

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

const (
	// ackMax is the length of the longest message that may be an acknowledgement,
	// headers included. Acknowledgements have about 100 bytes.
	ackMax = 4 << 10
	// lineMax is the length of the longest control line. INFO is the longest.
	lineMax = 1 << 20
)

// A parser reads the messages of a server:
//
//	MSG <subject> <sid> [reply] <#bytes>\r\n<payload>\r\n
//	HMSG <subject> <sid> [reply] <#header> <#bytes, header included>\r\n<header><payload>\r\n
//
// Everything else is one line. It drops the acknowledgements for which drops reports true.
type parser struct {
	drops func(stream string, seq uint64) bool

	held  []byte // a line or a short message that is not complete yet
	large int    // bytes to come of a message that is too long for an acknowledgement
	blind bool   // this is not the NATS protocol: everything passes
}

// feed is the [filter] that drops acknowledgements.
func (p *parser) feed(b []byte) (out []byte) {
	p.held = append(p.held, b...)
	rest := p.held
	for len(rest) > 0 {
		size, whole := p.next(rest)
		if b == nil { // the end
			size = len(rest)
		}
		if size == 0 {
			break
		}
		unit := rest[:size]
		rest = rest[size:]
		if whole {
			if stream, seq, ok := acknowledged(unit); ok && p.drops(stream, seq) {
				continue
			}
		}
		out = append(out, unit...)
	}
	p.held = append(p.held[:0], rest...)
	return out
}

// next returns how many bytes at the start of b belong together, 0 if that is not
// known yet, and whether they are a whole line or short message.
func (p *parser) next(b []byte) (size int, whole bool) {
	if p.large > 0 {
		size = min(len(b), p.large)
		p.large -= size
		return size, false
	}
	end := bytes.IndexByte(b, '\n') + 1
	_, body, ok := control(b[:end])
	p.blind = p.blind || !ok || end == 0 && len(b) > lineMax
	switch {
	case p.blind:
		return len(b), false
	case end == 0 || body <= ackMax && len(b) < end+body:
		return 0, false
	case body > ackMax:
		p.large = body
		return end, false
	}
	return end + body, true
}

// control reads a control line. It returns the length of the header, and that of all
// that follows the line, 0 if nothing does.
func control(line []byte) (header, body int, ok bool) {
	f := strings.Fields(string(line))
	sizes := 0 // of the fields
	switch {
	case len(f) > 0 && f[0] == "MSG":
		sizes = 1
	case len(f) > 0 && f[0] == "HMSG":
		sizes = 2
	default:
		return 0, 0, true
	}
	if n := len(f) - sizes; n != 3 && n != 4 {
		return 0, 0, false
	}
	total, err := strconv.ParseUint(f[len(f)-1], 10, 31)
	if err != nil {
		return 0, 0, false
	}
	var h uint64
	if sizes == 2 {
		if h, err = strconv.ParseUint(f[len(f)-2], 10, 31); err != nil {
			return 0, 0, false
		}
	}
	return int(h), int(total) + len("\r\n"), h <= total
}

// acknowledged returns what a whole message acknowledges, if it is an acknowledgement.
func acknowledged(unit []byte) (stream string, seq uint64, ok bool) {
	if !bytes.HasPrefix(unit, []byte("MSG ")) && !bytes.HasPrefix(unit, []byte("HMSG ")) {
		return "", 0, false
	}
	end := bytes.IndexByte(unit, '\n') + 1
	header, _, _ := control(unit[:end])
	var ack struct {
		Stream string          `json:"stream"`
		Seq    uint64          `json:"seq"`
		Error  json.RawMessage `json:"error"`
	}
	payload := bytes.TrimSpace(unit[end+header:])
	if !bytes.HasPrefix(payload, []byte("{")) || json.Unmarshal(payload, &ack) != nil {
		return "", 0, false
	}
	return ack.Stream, ack.Seq, ack.Stream != "" && ack.Seq > 0 && ack.Error == nil
}
