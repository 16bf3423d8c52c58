package subjects

// Throttle is the request that throttles a tag, or each tag, to a number of IDs per second of all workers together,
// or ends a throttle. The zero value changes nothing, and asks for the throttles. Off without Tag and All ends all
// throttles.
type Throttle struct {
	Tag  string `json:"tag,omitempty"`
	All  bool   `json:"all,omitempty"`  // each tag; excludes Tag
	Rate int64  `json:"rate,omitempty"` // IDs per second, 1 to MaxRate; excludes Off
	Off  bool   `json:"off,omitempty"`
}

// Throttles is the answer: the throttles in force, in IDs per second. If two apply to a tag, the lower one counts.
type Throttles struct {
	All  int64            `json:"all"`  // each tag; 0 is no throttle
	Tags map[string]int64 `json:"tags"` // some tags
}

const exampleThrottle = `{"tag":"order","rate":1000}`

// ParseThrottle reads the body of a request that throttles. The error is an [*Error] of code [BadRequest].
func ParseThrottle(body []byte) (Throttle, error) {
	if len(body) == 0 {
		return Throttle{}, nil
	}
	return parse(body, exampleThrottle, Throttle.Check)
}

// Asks reports whether the request changes nothing.
func (t Throttle) Asks() bool { return t == Throttle{} }

// Check returns nil, or an [*Error] of code [BadRequest] that names the fault of the request.
func (t Throttle) Check() error {
	switch {
	case t.Asks():
		return nil
	case t.Tag != "" && t.All:
		return Errorf(BadRequest, "tag and all exclude each other: give one")
	case t.Off && t.Rate != 0:
		return Errorf(BadRequest, "rate and off exclude each other: give one")
	case !t.Off && t.Tag == "" && !t.All:
		return Errorf(BadRequest, "no target to throttle: give tag, or all")
	case !t.Off && (t.Rate < 1 || t.Rate > MaxRate):
		return Errorf(BadRequest, "rate %d, want 1..%d IDs per second, or off", t.Rate, int64(MaxRate))
	case t.Tag != "":
		return CheckTag(t.Tag)
	}
	return nil
}
