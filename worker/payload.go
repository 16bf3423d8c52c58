package worker

import (
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// MinPayload is the least max_payload of a NATS server with which a worker answers every request, be it in many parts.
const MinPayload = 1024

// maxPage bounds a page of tags, in bytes, well below the megabyte that NATS
// carries by default. What does not fit is on the next page.
const maxPage = 512 << 10

// A page is a list of tags that becomes one reply.
type page struct {
	room  int // bytes left
	infos []subjects.TagInfo
}

func newPage(conn *nats.Conn) *page {
	const frame = len(`{"tags":[]}`)
	return &page{room: min(maxPage, int(conn.MaxPayload())) - frame, infos: []subjects.TagInfo{}}
}

// add adds a tag, or reports that it belongs on the next page. The first tag gets
// on the page, if need be without its description.
func (p *page) add(info subjects.TagInfo) (fits bool) {
	size := sizeOf(info)
	if size > p.room && len(p.infos) == 0 {
		info.Description = ""
		size = sizeOf(info)
	} else if size > p.room {
		return false
	}
	p.infos, p.room = append(p.infos, info), p.room-size
	return true
}

// sizeOf returns how many bytes a tag takes, with a comma.
func sizeOf(info subjects.TagInfo) int {
	body, err := json.Marshal(info)
	if err != nil {
		return maxPage // which the reply will say
	}
	return len(body) + 1
}
