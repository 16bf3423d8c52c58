package worker

import (
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// MinPayload is the least max_payload, in bytes, that the NATS server must have: statistics of the busiest tags take up
// to 45 kB.
const MinPayload = 64 << 10

// maxPage bounds a page of tags, in bytes, well below the 1 MB that NATS accepts by default. Further tags are on the
// next page.
const maxPage = 512 << 10

// pageOf returns the first of the tags that fit in one reply.
func (c *Config) pageOf(tags []segment.Tag, conn *nats.Conn) []subjects.TagInfo {
	page, room := []subjects.TagInfo{}, min(maxPage, int(conn.MaxPayload()))-len(`{"tags":[]}`)
	for _, t := range tags {
		info := c.tagInfo(t)
		body, _ := json.Marshal(info) // cannot fail: texts, numbers and a time
		if room -= len(body) + len(","); room < 0 {
			break
		}
		page = append(page, info)
	}
	return page
}
