package subjects

// Throttle is the request that throttles each tag, and its answer. It needs Rate: IDs per second of all workers
// together, 1 to MaxRate; 0 ends the throttle. A tag's own rate counts where it is lower.
type Throttle struct {
	Rate *int64 `json:"rate"`
}

const exampleThrottle = `{"rate":500}`

// ParseThrottle reads the body of a request that throttles. The error is an [*Error] of code [BadRequest].
func ParseThrottle(body []byte) (Throttle, error) {
	return parse(body, exampleThrottle, func(t Throttle) error {
		if t.Rate == nil || *t.Rate < 0 || *t.Rate > MaxRate {
			return Errorf(BadRequest, "want a rate, 1..%d IDs per second, or 0 to end the throttle", int64(MaxRate))
		}
		return nil
	})
}
