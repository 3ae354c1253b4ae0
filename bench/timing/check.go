//go:build linux

package timing

import "context"

// A Check measures the value of one promise about speed, in Unit. The value keeps the promise up to Limit. Above Held it
// is worse than when it was last measured; a Held of 0 means Limit.
type Check struct {
	Name, Unit  string
	Limit, Held float64
	Measure     func(context.Context) (value float64, detail string, err error)
}
