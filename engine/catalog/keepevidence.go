package catalog

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/snapfs/snapfs/internal/units"
)

// A KeepEvidence is the retention rule for the records of what was done to a sandbox (its evidence): older records go
// when one of the bounds is reached. In the site's policy it is the least that stays whatever a sandbox's rule says. A
// zero bound is none.
type KeepEvidence struct {
	// Records is how many of the newest records stay, For how long each stays, and Size how many bytes of the newest.
	Records int64         `json:"records,omitempty"`
	For     time.Duration `json:"for_ns,omitempty"`
	Size    int64         `json:"size,omitempty"`
	// All is set if no record is ever removed.
	All bool `json:"all,omitempty"`
}

// String returns the rule in the form that [ParseKeepEvidence] reads: bounds with commas between them, or "all".
func (k KeepEvidence) String() string {
	if k.All {
		return "all"
	}
	var bounds []string
	if k.Records > 0 {
		bounds = append(bounds, fmt.Sprintf("records=%d", k.Records))
	}
	if k.For > 0 {
		bounds = append(bounds, "for="+units.FormatDuration(k.For))
	}
	if k.Size > 0 {
		bounds = append(bounds, "size="+units.FormatSize(k.Size))
	}
	return strings.Join(bounds, ",")
}

// ParseKeepEvidence parses a retention rule for evidence, such as records=100000,for=90d,size=500M, or "all".
func ParseKeepEvidence(text string) (k KeepEvidence, err error) {
	if text == "all" {
		return KeepEvidence{All: true}, nil
	}
	for bound := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(bound), "=")
		good := false
		switch name {
		case "records":
			k.Records, err = units.ParseCount(value)
			good = err == nil && k.Records > 0
		case "for":
			k.For, err = units.ParseDuration(value)
			good = err == nil && k.For > 0
		case "size":
			k.Size, err = units.ParseSize(value)
			good = err == nil && k.Size > 0
		}
		if !good {
			return KeepEvidence{}, errors.Join(fmt.Errorf("invalid bound %q: use records=N, for=DURATION or size=SIZE", bound), err)
		}
	}
	return k, nil
}
