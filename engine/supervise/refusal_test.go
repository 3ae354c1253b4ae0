package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/errs"
)

// What a keeper could not do exits with the same status, and is mended by the
// same command, as if the caller had tried it himself.
func TestARefusalKeepsItsKindAndHintsOnTheWay(t *testing.T) {
	for _, err := range []error{
		&errs.Error{Op: "a", Kind: errs.ErrNoSpace, Hints: []string{"snapfs gc"}},
		&errs.Error{Op: "b", Kind: errs.ErrDenied, Hints: []string{"sudo x"}},
		fmt.Errorf("c: %w", syscall.EROFS),
		errors.New("of no kind"),
	} {
		sent, jerr := json.Marshal(Reply{Refused: refusalOf(err)})
		var heard Reply
		if jerr = errors.Join(jerr, json.Unmarshal(sent, &heard)); jerr != nil {
			t.Fatal(jerr)
		}
		got := heard.refusal()
		if got.Error() != err.Error() || !errors.Is(errs.KindOf(got), errs.KindOf(err)) || !slices.Equal(errs.HintsOf(got), errs.HintsOf(err)) {
			t.Errorf("%v arrives as %v of kind %v with %q", err, got, errs.KindOf(got), errs.HintsOf(got))
		}
	}
	if err := new(Reply).refusal(); errs.KindOf(err) == nil {
		t.Errorf("an answer that says nothing is %v", err)
	}
}
