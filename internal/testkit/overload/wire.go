package overload

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
)

// A wire is a connection to a nats-server that speaks just enough of its protocol to send requests and to read the
// answers. A client for all purposes takes several times the CPU time, which callers and the server need here.
type wire struct {
	net.Conn
	in    *bufio.Reader
	inbox string // ends with a dot

	mu  sync.Mutex
	out []byte // buffered until flush
}

// An answer is a message to a wire's inbox.
type answer struct {
	token  []byte // of its subject, behind the inbox
	header []byte // with its first line; empty if there is none
	body   []byte
}

// dial connects to a server at a URL, nats://host:port, and subscribes to inbox.*.
func dial(server, inbox string) (*wire, error) {
	at, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	nc, err := net.Dial("tcp", at.Host)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: nc, in: bufio.NewReaderSize(nc, 64<<10), inbox: inbox + "."}
	if _, err := w.in.ReadSlice('\n'); err != nil { // INFO
		nc.Close()
		return nil, fmt.Errorf("%s: %w", server, err)
	}
	w.out = fmt.Appendf(nil, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nSUB %s* 1\r\n",
		w.inbox)
	return w, w.flush()
}

// publish sends an empty message with the next flush. Its reply subject is a number in the inbox, if that is 0 or more.
func (w *wire) publish(subject string, number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = append(append(w.out, "PUB "...), subject...)
	if number >= 0 {
		w.out = strconv.AppendInt(append(append(w.out, ' '), w.inbox...), int64(number), 10)
	}
	w.out = append(w.out, " 0\r\n\r\n"...)
}

func (w *wire) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.Write(w.out)
	w.out = w.out[:0]
	return err
}

// read calls take with each answer until the connection ends. The content of an answer is valid until take returns.
func (w *wire) read(take func(answer)) error {
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		words := bytes.Fields(line)
		switch {
		case len(words) == 0:
			return fmt.Errorf("an empty line")
		case bytes.Equal(words[0], []byte("PING")):
			w.mu.Lock()
			w.out = append(w.out, "PONG\r\n"...)
			w.mu.Unlock()
			err = w.flush()
		case bytes.Equal(words[0], []byte("MSG")), bytes.Equal(words[0], []byte("HMSG")):
			err = w.message(words, take)
		case bytes.Equal(words[0], []byte("-ERR")):
			err = fmt.Errorf("the nats-server says: %s", line)
		}
		if err != nil {
			return err
		}
	}
}

// message reads a message that begins with these words:
//
//	MSG <subject> <sid> [<reply>] <size>
//	HMSG <subject> <sid> [<reply>] <size of the header> <size>
func (w *wire) message(words [][]byte, take func(answer)) error {
	size, err := strconv.Atoi(string(words[len(words)-1]))
	head := 0
	if err == nil && words[0][0] == 'H' {
		head, err = strconv.Atoi(string(words[len(words)-2]))
	}
	if err != nil {
		return fmt.Errorf("the message %s: %w", bytes.Join(words, []byte(" ")), err)
	}
	token := append([]byte(nil), bytes.TrimPrefix(words[1], []byte(w.inbox))...)
	content, err := w.in.Peek(size + len("\r\n"))
	if err != nil {
		return err
	}
	take(answer{token: token, header: content[:head], body: content[head:size]})
	_, err = w.in.Discard(size + len("\r\n"))
	return err
}
