package app_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestTheStartWaitsForNATS(t *testing.T) {
	addr := freeAddress(t)
	i := launch(t, joined(t, "nats://me:secret@"+addr))
	i.logs("does not answer yet", "trying again", addr)
	startServer(t, addr)
	w := i.where()
	if w.Embedded || !strings.Contains(w.URL, addr) {
		t.Errorf("%+v", w)
	}
	ids(t, patient(natstest.Connect(t, "nats://"+addr), ""))
	i.stop() // before its server
	if err := i.end(); err != nil {
		t.Error(err)
	}
	if text := i.log.String() + fmt.Sprint(w); strings.Contains(text, "secret") {
		t.Errorf("the password is shown: %s", text)
	}
}

func TestAStopEndsTheWaitForNATS(t *testing.T) {
	i := launch(t, joined(t, "nats://"+freeAddress(t)))
	i.logs("trying again")
	i.stop()
	if err := i.end(); err != nil {
		t.Errorf("stopped while it waited: %v", err)
	}
}

func TestAStopBeforeTheStartIsNoError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := settings(t)
	if err := app.Run(ctx, cfg); err != nil {
		t.Error(err)
	}
	launch(t, cfg).where()
}
