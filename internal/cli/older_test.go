package cli_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestACommandSaysThatAWorkerOfAnOlderVersionAnswered(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	old := natstest.Connect(t, url)
	for _, subject := range []string{"id.tag.create", "id.tag.update"} {
		_, err := old.QueueSubscribe(subject, "natsid", func(m *nats.Msg) {
			reply := nats.NewMsg(m.Reply)
			reply.Header.Set("Nats-Service-Error-Code", "400")
			reply.Header.Set("Nats-Service-Error", // the words of a worker of before strict tags
				`the body is not a request ("json: unknown field \"order\""); want JSON such as {"tag":"order"}`)
			_ = m.RespondMsg(reply)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"tag create invoice --order strict", "tag update invoice --order strict"} {
		got := answered(t, append(strings.Fields(args), "--nats="+url)...)
		got.want(t, 1, "is of an older version, and changed nothing: upgrade or stop", "`natsid top`")
	}
}
