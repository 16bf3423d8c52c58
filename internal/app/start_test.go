package app_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

func TestARestartContinuesAboveAllIDsUnderTheSameNumber(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	var segment, flake subjects.ID
	number, before := -1, ""
	for life := range 4 {
		i := launch(t, cfg)
		w := i.where()
		// A worker whose disk stood still has given up its number.
		if number >= 0 && w.Number != number && !strings.Contains(before, "the disk has not answered") {
			t.Errorf("life %d has number %d, before it was %d", life, w.Number, number)
		}
		number = w.Number
		c := patient(natstest.Connect(t, w.URL), "")
		for range 50 {
			s, f := ids(t, c)
			if s <= segment || f <= flake {
				t.Fatalf("life %d: %d after %d, %d after %d", life, s, segment, f, flake)
			}
			segment, flake = s, f
		}
		i.stop()
		if err := i.end(); err != nil {
			t.Fatal(err)
		}
		before += i.log.String()
	}
}

func TestASecondInstanceOnOneDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	first := launch(t, cfg)
	w := first.where()
	other := cfg
	other.NATS = w.URL // which does not even need the store
	for _, second := range []app.Config{cfg, other} {
		err := launch(t, second).end()
		if !errors.Is(err, app.ErrDataInUse) || !containsAll(err.Error(), cfg.Data, "--data") {
			t.Errorf("%v, want ErrDataInUse that names %s and --data", err, cfg.Data)
		}
	}
	ids(t, patient(natstest.Connect(t, w.URL), "")) // the first is unaffected
}

func TestAPortInUseNamesTheTwoRemedies(t *testing.T) {
	addr := startServer(t, "127.0.0.1:0").Addr().String()
	cfg := settings(t)
	cfg.Listen = addr
	err := launch(t, cfg).end()
	if !errors.Is(err, app.ErrListenTaken) || !containsAll(err.Error(), addr, "--nats nats://"+addr, "--listen") {
		t.Errorf("%v, want ErrListenTaken that names --nats and --listen", err)
	}
	// Nothing is left behind that prevents the next start.
	cfg.Listen = "127.0.0.1:0"
	launch(t, cfg).where()
}

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

func TestAnotherEpochOnTheSameDataIsRefused(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	first := launch(t, cfg)
	first.where()
	first.stop()
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	other := cfg
	other.Layout.Epoch += 1000
	err := launch(t, other).end()
	epochs := []string{fmt.Sprint(cfg.Layout.Epoch), fmt.Sprint(other.Layout.Epoch)}
	if !errors.Is(err, workerid.ErrDeployment) || !containsAll(err.Error(), epochs...) {
		t.Errorf("%v, want ErrDeployment with both epochs", err)
	}
	launch(t, cfg).where()
}

func TestWorkersOfOneNameGetDifferentNumbers(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	numbers := map[int]bool{}
	for range 3 {
		cfg := joined(t, url)
		cfg.Name = "twin"
		w := launch(t, cfg).where()
		if numbers[w.Number] || w.Instance != "twin" {
			t.Errorf("%+v: another worker has the number", w)
		}
		numbers[w.Number] = true
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

func TestADataDirectoryThatCannotBeCreatedIsNamed(t *testing.T) {
	cfg := settings(t)
	cfg.Data = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(cfg.Data, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := app.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), cfg.Data) {
		t.Errorf("%v, want an error that names %s", err, cfg.Data)
	}
}
