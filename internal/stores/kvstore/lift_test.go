package kvstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
)

func TestALiftRaisesAMarkAndDiscardsWhatMayBeInTwoMemories(t *testing.T) {
	for name, test := range map[string]struct {
		floor       int64
		mark, least int64
	}{
		"above the mark": {floor: 900, mark: 900, least: 500},
		"at the mark":    {floor: 500, mark: 500, least: 500},
		"below the mark": {floor: 300, mark: 500, least: 300},
		"nothing loaded": {floor: 0, mark: 500, least: 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, connect(t), bucketName())
			create(t, s, segment.Tag{Name: "order", Step: 10, MaxID: 500, Description: "d"})
			if _, err := s.Lift(t.Context(), "order", segment.Floor{End: test.floor}); err != nil {
				t.Fatal(err)
			}
			got, err := s.Look(t.Context(), "order")
			if err != nil || got.MaxID != test.mark || got.Least != test.least || got.Step != 10 || got.Disabled {
				t.Errorf("%+v, %v, want mark %d, least %d", got, err, test.mark, test.least)
			}
		})
	}
}

// Where the identity was damaged nobody knows the era in which a tag was made that nobody has loaded.
func TestALiftTakesATagThatWasMadeForABucketThatIsLost(t *testing.T) {
	js, bucket := connect(t), bucketName()
	s := open(t, js, bucket)
	create(t, s, segment.Tag{Name: "order", Step: 10, MaxID: 1})
	put := func(identity []byte) {
		t.Helper()
		if _, err := js.Publish(t.Context(), "$KV."+bucket+"."+buckets.Own, identity); err != nil {
			t.Fatal(err)
		}
	}
	id, err := s.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put([]byte("{"))
	if raised, err := s.Lift(t.Context(), "order", segment.Floor{End: 900}); err != nil || !raised {
		t.Errorf("raised is %t, %v", raised, err)
	}
	id.Eras = []string{"another"}
	put(id.Encode())
	if l, err := s.Load(t.Context(), "order", 1, 0); err != nil || l.Start != 900 {
		t.Errorf("%+v, %v, want a range from 900 on", l, err)
	}
}

func TestALiftOfAMissingTagLetsNothingBeIssuedBelow(t *testing.T) {
	s := open(t, connect(t), bucketName())
	floors := map[string]segment.Floor{"live": {End: 900, Step: 20, Live: true}, "dropped": {End: 700, Step: 20}}
	for tag, f := range floors {
		if _, err := s.Lift(t.Context(), tag, f); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := s.Load(t.Context(), "live", 1, 0); err != nil || l.Start != 900 || l.Step != 20 {
		t.Errorf("%+v, %v, want a range from 900", l, err)
	}
	if _, err := s.Load(t.Context(), "dropped", 1, 0); !errors.Is(err, segment.ErrDisabled) {
		t.Errorf("%v, want ErrDisabled: only its operator revives it", err)
	}
	if got, err := s.Create(t.Context(), segment.Tag{Name: "dropped", Step: 1, MaxID: 1}, true); err != nil ||
		got.MaxID != 700 {
		t.Errorf("%+v, %v, want it to continue at 700", got, err)
	}
}

func TestALoadFromAMarkBelowTheFloorShowsThatTheBucketWentBack(t *testing.T) {
	var shown []string
	s := kvstore.New(buckets.OnJetStream(connect(t)), kvstore.Config{
		Bucket: bucketName(), WentBack: func(why string) { shown = append(shown, why) },
	})
	if _, err := s.Create(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: 1}, true); err != nil {
		t.Fatal(err)
	}
	for _, floor := range []int64{0, 11} {
		if _, err := s.Load(t.Context(), "order", 1, floor); err != nil || len(shown) > 0 {
			t.Fatalf("%v, shown %q: nothing went back", err, shown)
		}
	}
	if _, err := s.Load(t.Context(), "order", 1, 500); err != nil || len(shown) != 1 ||
		!strings.Contains(shown[0], "order was 21, and this worker had loaded up to 500") {
		t.Errorf("%v, shown %q", err, shown)
	}
}

func TestALiftRaisesTheMarkAndThePollTheRow(t *testing.T) {
	g, table, marks := guarded(t, nil)
	load(t, g) // [1,101)
	if raised, err := g.Lift(t.Context(), "a", segment.Floor{End: 5000}); err != nil || !raised {
		t.Fatalf("raised %t, %v", raised, err)
	}
	if err := g.Poll(t.Context(), func(segment.Listing) {}); err != nil {
		t.Fatal(err)
	}
	if got := table.Snapshot()["a"].MaxID; got != 5000 {
		t.Errorf("the row is at %d, want 5000", got)
	}
	other := beside(table, marks)
	if got, err := other.Look(t.Context(), "a"); err != nil || got.MaxID != 5000 || got.Least != 101 {
		t.Errorf("%+v, %v, want mark 5000 and least 101", got, err)
	}
	if raised, err := g.Lift(t.Context(), "a", segment.Floor{End: 300}); err != nil || raised {
		t.Fatalf("raised %t by a lower floor, %v", raised, err)
	}
	if got := load(t, other); got.Start != 5000 {
		t.Errorf("a load begins at %d, want 5000: nothing is lowered", got.Start)
	}
}
