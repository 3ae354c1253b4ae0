package page_test

import (
	"fmt"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest/browser"
	"github.com/snapfs/snapfs/serve/token"
)

// raced is the card of an attempt of a race, from 0.
func raced(number int) string {
	return fmt.Sprintf("document.querySelectorAll('.attempt')[%d]", number)
}

// setRace fills a field of the form by which a race is started.
func setRace(b *browser.Browser, field, value string) {
	b.T.Helper()
	browser.Eval[any](b, fmt.Sprintf("document.getElementById('race-%s').value = %q", field, value))
}

// personChoosesAWinner: of attempts that are side by side while they run, by what each changed, and promotes it as any
// sandbox.
func personChoosesAWinner(t *testing.T, b *browser.Browser) {
	d := openDesk(t)
	d.begin(b, token.Scopes()...)
	b.Press("4")
	b.Is("location.hash", "#/races")
	const attempts = `echo better > a.txt; echo '<img src=x onerror=pwned=1>' | tee new.txt
echo best > a.txt; printf '1\n2\n' > b.txt
exit 7`
	setRace(b, "attempts", attempts)
	setRace(b, "check", "grep -q be a.txt")
	browser.Eval[any](b, "document.querySelector('form.race').requestSubmit()")
	b.Is("[...document.querySelectorAll('.attempt')].map(e => e.querySelectorAll('button').length).join()", "2,2,0")
	b.Is(raced(1)+".innerText.includes('+3 −1')", true)
	b.Is(raced(0)+".innerText.includes('Check\\npassed') && "+raced(2)+".innerText.includes('Status\\n7')", true)
	const changes = "document.querySelector('section.wide')"
	b.Is(changes+".innerText.includes('unchanged')", true)
	b.Is(changes+".querySelectorAll('tbody tr:not([hidden])').length", 3) // a.txt, b.txt, new.txt
	browser.Eval[any](b, changes+".querySelector('button').click()")
	b.Is("[..."+changes+".querySelectorAll('pre .added')].map(e => e.textContent.trim()).filter(l => !l.startsWith('+++')).join()", "+better,+best")
	d.unharmed(b)

	browser.Eval[any](b, "document.querySelector('[aria-label=\"Choose attempt 2\"]').click()")
	b.Is("document.activeElement.textContent", "Promotion of attempt 2")
	for range 2 {
		b.Press("j")
		b.Press("a")
	}
	review := "[...document.querySelectorAll('button')].find(b => b.textContent === 'Review what is approved')"
	b.Is(review+".disabled", false)
	browser.Eval[any](b, review+".click()")
	b.Is("document.activeElement.textContent", "Promote")
	if d.real("b.txt") != "" {
		t.Error("a plan changed the real tree")
	}
	browser.Eval[any](b, "document.activeElement.click()")
	b.Is("document.activeElement.textContent", "Undo")
	if d.real("a.txt") != "best\n" || d.real("b.txt") != "1\n2\n" || d.real("new.txt") != "" {
		t.Errorf("promoted: a %q, b %q, new %q", d.real("a.txt"), d.real("b.txt"), d.real("new.txt"))
	}
	browser.Eval[any](b, "document.querySelector('[aria-label=\"Remove attempt 1\"]').click()")
	b.Is("document.getElementById('said').textContent", "Attempt 1 is removed.")
	b.Is("document.querySelectorAll('section.wide tbody tr:not([hidden])').length", 2)

	// A race that a person ends leaves nothing.
	setRace(b, "attempts", "exit 7\nexec sleep 600")
	browser.Eval[any](b, "document.querySelector('form.race').requestSubmit()")
	b.Is(raced(0)+".innerText.includes('failed')", true)
	b.Is(raced(1)+".innerText.includes('running')", true) // while another has ended
	browser.Eval[any](b, "document.querySelector('form.race').elements.stop.click()")
	b.Is("document.getElementById('said').textContent.startsWith('You have ended the race')", true)
	b.Press("1")
	b.Is("document.querySelectorAll('#list a').length", 1)
	d.unharmed(b)
	d.begin(b, token.Read)
	b.Press("4")
	b.Is("document.querySelector('form.race').elements.start.disabled", true)
}
