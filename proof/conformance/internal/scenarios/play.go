package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/natsid/natsid/proof/conformance/internal/adapter"
	"github.com/natsid/natsid/proof/conformance/internal/contract"
	"github.com/natsid/natsid/proof/conformance/internal/rig"
)

// A Description is what an adapter says of itself.
type Description struct {
	Language, Client, Profile string
	Methods                   []string
}

// Describe starts an adapter to ask what it is, and returns an error unless its methods are those of its profile.
func (w *World) Describe() (d Description, err error) {
	a, err := adapter.Start(w.Contract, w.Command)
	if err != nil {
		return d, err
	}
	d, err = describe(a)
	if err != nil {
		a.Kill()
		return d, err
	}
	if w.Profile != "" && w.Profile != d.Profile {
		err = fmt.Errorf("the adapter's profile is %s, want %s", d.Profile, w.Profile)
	}
	return d, errors.Join(err, w.Contract.CheckMethods(d.Profile, d.Methods), a.Close())
}

func describe(a *adapter.Adapter) (d Description, err error) {
	raw, err := a.Begin("describe", object{}).Wait(startsWithin)
	if err == nil {
		err = json.Unmarshal(raw, &d)
	}
	return d, err
}

// startsWithin is how long an adapter may take until it answers: a program may compile itself first.
const startsWithin = time.Minute

// For returns the scenarios of a profile.
func For(profile string) []Scenario {
	return slices.DeleteFunc(slices.Clone(All), func(sc Scenario) bool {
		return profile != contract.Full && !sc.Wire
	})
}

// Play plays a scenario on a stage of its own, and returns why the client falls short, or nil.
func (w *World) Play(sc Scenario, profile, ns string) (err error) {
	nc, err := rig.Connect(w.NATS)
	if err != nil {
		return err
	}
	defer nc.Close()
	desk, err := rig.OpenDesk(nc, ns)
	if err != nil {
		return err
	}
	a, err := adapter.Start(w.Contract, w.Command)
	if err != nil {
		return err
	}
	if _, err := describe(a); err != nil {
		a.Kill()
		return err
	}
	s := &Stage{World: w, Adapter: a, Profile: profile, NS: ns, Desk: desk}
	if err := s.play(sc); err != nil {
		a.Kill()
		return err
	}
	if err := a.Fault(); err != nil {
		a.Kill()
		return err
	}
	return a.Close()
}

// play plays a scenario, and returns the verdict that ended it.
func (s *Stage) play(sc Scenario) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case verdict:
			err = errors.New(v.says)
		default:
			panic(v)
		}
	}()
	sc.Play(s)
	return nil
}
