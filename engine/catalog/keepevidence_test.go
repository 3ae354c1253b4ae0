package catalog

import (
	"testing"
	"time"
)

func TestARetentionRuleIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]KeepEvidence{
		"all":                             {All: true},
		"records=1000":                    {Records: 1000},
		"for=36h":                         {For: 36 * time.Hour},
		"records=5, for=90d, size=500MiB": {Records: 5, For: 90 * 24 * time.Hour, Size: 500 << 20},
	} {
		k, err := ParseKeepEvidence(text)
		if err != nil || k != want {
			t.Errorf("%s: %+v, %v", text, k, err)
		}
		if again, err := ParseKeepEvidence(k.String()); err != nil || again != want {
			t.Errorf("%s, written as %s: %+v, %v", text, k, again, err)
		}
	}
	for _, text := range []string{"", "records", "records=0", "records=-1", "for=0", "size=0", "age=5", "records=5,", "5"} {
		if k, err := ParseKeepEvidence(text); err == nil {
			t.Errorf("%q is read as %+v", text, k)
		}
	}
}
