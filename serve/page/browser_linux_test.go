package page_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/treetest/browser"
	"github.com/snapfs/snapfs/serve/token"
)

// hostile are names that would run, or break the page, if it took them for markup.
var hostile = []string{
	`<img src=x onerror=pwned=1>`,
	"\"'><script>pwned=1<\u2215script>",
	"a\x01\x1b[31m\u202egnp.exe",
	"javascript:pwned=1",
	"{{constructor.constructor('pwned=1')()}}",
	strings.Repeat("n", 250),
	"100%25 ?#&[*]\\",
	"no\xffUTF-8",
}

// begin opens the page by a link with these scopes.
func (d *desk) begin(b *browser.Browser, scopes ...token.Scope) {
	d.t.Helper()
	b.Open("about:blank") // or only the fragment would change
	b.Open(d.base + "/#login=" + d.page.Link(scopes))
	b.Is("document.getElementById('who').hidden", false)
	b.Is("document.getElementById('live').textContent", "live")
	b.Is("location.hash", "")
}

// unharmed checks that nothing of a name ran or became an element, and that nothing came from elsewhere.
func (d *desk) unharmed(b *browser.Browser) {
	d.t.Helper()
	b.Is("typeof pwned", "undefined")
	b.Is("document.querySelectorAll('img,iframe,object,embed,base,math,script:not([src])').length", 0)
	b.Quiet(d.base + "/")
}

const text = "document.getElementById('main').innerText"

// open opens a section of the detail by its key, and waits until it has loaded.
func openSection(b *browser.Browser, key, title string) string {
	section := fmt.Sprintf("[...document.querySelectorAll('details.card')].find(d => d.firstChild.textContent === '%s')", title)
	browser.Eval[any](b, "document.activeElement.blur()")
	b.Press(key)
	b.Is(section+".open && "+section+".lastChild.children.length > 0", true)
	return section
}

// TestInABrowser plays what a person does on the page. All cases share one browser; each has a server, and cookies and
// storage, of its own. make test plays those about safety and promotion, and make test-long all.
func TestInABrowser(t *testing.T) {
	needed(t)
	treetest.Leaks(t)
	cases := map[string]func(*testing.T, *browser.Browser){
		"APersonLogsIn":                   personLogsIn,
		"HostileNamesAreTexts":            hostileNamesAreTexts,
		"APersonPromotesWhatTheyApproved": personPromotesWhatTheyApproved,
		"APersonUsesATerminal":            personUsesATerminal,
	}
	if treetest.Long(t) {
		maps.Copy(cases, map[string]func(*testing.T, *browser.Browser){
			"APersonPromotesAHunk":      personPromotesAHunk,
			"OutputComesAsItIsWritten":  outputComesAsItIsWritten,
			"APersonDecidesOnJobs":      personDecidesOnJobs,
			"NoTerminalWithoutTheScope": noTerminalWithoutTheScope,
			"APersonChoosesAWinner":     personChoosesAWinner,
		})
	}
	b := browser.Start(t)
	for name, play := range cases {
		t.Run(name, func(t *testing.T) { play(t, b.Fresh(t)) })
	}
}

// personLogsIn: by a token or a link. A session that was ended is over at once.
func personLogsIn(t *testing.T, b *browser.Browser) {
	d := openDesk(t)
	secret, err := token.Open(d.state).New(token.Token{Name: "me", Scopes: []token.Scope{token.Read}})
	if err != nil {
		t.Fatal(err)
	}
	b.Open(d.base + "/")
	b.Is("document.activeElement.id", "token")
	fill := func(text string) {
		b.Is("!!document.getElementById('token')", true)
		browser.Eval[any](b, fmt.Sprintf("document.getElementById('token').value = %q", text))
		b.Click("form button")
	}
	fill("snapfs_wrong")
	b.Is("document.getElementById('said').textContent.includes('unknown')", true)
	fill(secret)
	b.Is("document.getElementById('name').textContent", "me: read")
	b.Is("document.cookie", "")
	b.Open(d.base + "/")
	b.Is("document.getElementById('name').textContent", "me: read")
	if err := token.Open(d.state).Remove("me"); err != nil {
		t.Fatal(err)
	}
	b.Press("2")
	b.Is("!!document.getElementById('token')", true)
	d.begin(b, token.Read)
	b.Click("#logout")
	b.Is("!!document.getElementById('token')", true)
	b.Is("localStorage.length", 0)
	if list, err := token.Open(d.state).List(); err != nil || len(list) != 0 {
		t.Errorf("left: %v %v", list, err)
	}
}

// hostileNamesAreTexts: of workspaces, files, commands, jobs and their output.
func hostileNamesAreTexts(t *testing.T, b *browser.Browser) {
	d := openDesk(t)
	d.snapfs("new", "t1")
	d.snapfs(append([]string{"exec", "t1", "--", "sh", "-c", `for name; do cp a.txt "$name"; printf '%s\n' "$name" >> texts; done`, "sh"}, hostile...)...)
	// A path of 4,000 bytes.
	d.snapfs("exec", "t1", "--", "sh", "-c", `n=$(printf %0240d 0); for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do mkdir "$n" && cd "$n" || exit 1; done; echo x > file`)
	for _, name := range hostile[:3] {
		d.snapfs("exec", "--detach", "t1", "--", "sh", "-c", `cat texts`, name, strings.Repeat(name, 50))
		d.snapfs("job", "submit", "--", "sh", "-c", "echo x > job", name)
	}
	d.begin(b, token.Scopes()...)
	browser.Eval[any](b, "location.hash = '#/sandbox/t1'")
	b.Is("document.querySelectorAll('details.card tbody tr').length > 20", true)
	b.Is(text+".includes('<img src=x onerror=pwned=1>')", true)
	b.Is(text+".includes('a\u2401\u241b[31m\\\\u{202e}gnp.exe')", true)
	b.Is(text+".includes('\u202e')", false)
	openSection(b, "p", "Promotion")
	openSection(b, "d", "Drift")
	openSection(b, "u", "Usage")
	commands := openSection(b, "r", "Commands")
	b.Is(commands+".querySelectorAll('li').length", 3)
	browser.Eval[any](b, commands+".querySelector('li button').click()")
	b.Is("document.getElementById('output').textContent.includes('<img src=x onerror=pwned=1>')", true)
	b.Is("document.getElementById('output').textContent.includes('\x1b')", false)
	browser.Eval[any](b, "document.querySelectorAll('details.card button[aria-expanded]').forEach(b => b.click())")
	b.Is("[...document.querySelectorAll('details.card pre[aria-label=patch]')].filter(p => !p.textContent).map(p => p.previousSibling.textContent).join()", "")
	b.Is("document.documentElement.scrollWidth <= innerWidth", true)
	d.unharmed(b)
	for key, view := range map[string]string{"2": "jobs", "3": "events"} {
		browser.Eval[any](b, "document.activeElement.blur()")
		b.Press(key)
		b.Is("location.hash", "#/"+view)
		b.Is(text+".includes('<img src=x onerror=pwned=1>')", true)
		b.Is("document.documentElement.scrollWidth <= innerWidth", true)
		d.unharmed(b)
	}
	// The policy would have stopped it, too.
	b.Is(`(() => { try { document.body.innerHTML = '<b>' } catch (e) { return e.name } })()`, "TypeError")
	b.Is(`fetch('http://127.0.0.1:9/').then(() => 'came', e => e.name)`, "TypeError")
}

// personPromotesWhatTheyApproved: by the keyboard, the page as it changes by itself, and undone.
func personPromotesWhatTheyApproved(t *testing.T, b *browser.Browser) {
	d := openDesk(t)
	d.snapfs("new", "t1")
	d.begin(b, token.Scopes()...)
	b.Is("document.querySelectorAll('#list a').length", 1)
	b.Press("j")
	b.Is("location.hash", "#/sandbox/t1")
	b.Is(text+".includes('Nothing has changed.')", true)
	d.snapfs("exec", "t1", "--", "sh", "-c", "echo two > b.txt; echo no > c.txt; echo '*' > '*.txt'; rm a.txt")
	b.Is(text+".includes('b.txt')", true) // without a reload
	d.snapfs("new", "t2")
	b.Is("document.getElementById('list').innerText.includes('t2')", true)

	plan := openSection(b, "p", "Promotion")
	b.Is(plan+".querySelectorAll('tbody tr').length", 4)
	review := "[..." + plan + ".querySelectorAll('button')].find(b => b.textContent === 'Review what is approved')"
	b.Is(review+".disabled", true)
	for _, approve := range []string{"a", "x", "a", "x"} { // *.txt, a.txt, b.txt, c.txt
		b.Press("j")
		b.Press(approve)
	}
	b.Is(plan+".innerText.includes('2 approved, 2 rejected, 0 open')", true)
	browser.Eval[any](b, review+".click()")
	b.Is("document.activeElement.textContent", "Promote")
	b.Is(plan+".innerText.includes('This makes 2 changes')", true)
	if d.real("b.txt") != "" {
		t.Error("a plan changed the real tree")
	}
	browser.Eval[any](b, "document.activeElement.click()")
	b.Is("document.activeElement.textContent", "Undo")
	if d.real("b.txt") != "two\n" || d.real("*.txt") != "*\n" || d.real("c.txt") != "" || d.real("a.txt") != "one\n" {
		t.Errorf("promoted: a %q, b %q, c %q, * %q", d.real("a.txt"), d.real("b.txt"), d.real("c.txt"), d.real("*.txt"))
	}
	browser.Eval[any](b, "document.activeElement.click()")
	b.Is("document.getElementById('said').textContent", "Undone: 2 paths.")
	if d.real("b.txt") != "" {
		t.Error("the undo left b.txt")
	}

	// A plan that a person looks at says that it is old, and does not change by itself.
	b.Is(plan+".querySelectorAll('tbody tr').length", 4)
	d.snapfs("exec", "t1", "--", "sh", "-c", "echo more > d.txt")
	b.Is(plan+".innerText.includes('plan again')", true)
	b.Is(plan+".querySelectorAll('tbody tr').length", 4)
	d.unharmed(b)

	// A token without the scope can look, and no more.
	d.begin(b, token.Read)
	browser.Eval[any](b, "location.hash = '#/sandbox/t1'")
	b.Is("!!document.getElementById('title')", true)
	plan = openSection(b, "p", "Promotion")
	browser.Eval[any](b, "[..."+plan+".querySelectorAll('button')].find(b => b.textContent === 'Approve all').click()")
	b.Is(review+".disabled", true)
}

// personPromotesAHunk: of a text of which the rest stays in the sandbox, by the keyboard.
func personPromotesAHunk(t *testing.T, b *browser.Browser) {
	d := openDesk(t)
	var lines strings.Builder
	for i := range 30 {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	if err := os.WriteFile(d.work+"/long.txt", []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	d.snapfs("new", "t1")
	d.snapfs("exec", "t1", "--", "sh", "-c", "sed 's/line 2$/good <b>/; s/line 25$/bad/' long.txt > /tmp/new; cat /tmp/new > long.txt; echo two > a.txt")
	d.begin(b, token.Scopes()...)
	browser.Eval[any](b, "location.hash = '#/sandbox/t1'")
	b.Is("!!document.getElementById('title')", true)
	plan := openSection(b, "p", "Promotion")
	b.Is(plan+".querySelectorAll('tbody tr').length", 2) // a.txt, long.txt
	browser.Eval[any](b, plan+".querySelector('button[aria-label^=hunks][aria-label$=\"long.txt\"]').click()")
	b.Is(plan+".querySelectorAll('.hunk').length", 2)
	b.Is(plan+".innerText.includes('\\n0\\n')", false)
	b.Is(plan+".querySelector('.hunk pre').textContent.includes('+good <b>')", true)
	browser.Eval[any](b, "document.activeElement.blur()")
	for _, decide := range []string{"x", "", "a", "x"} { // a.txt, long.txt and its hunks
		b.Press("j")
		if decide != "" {
			b.Press(decide)
		}
	}
	b.Is(plan+".innerText.includes('1 approved, 1 rejected, 0 open')", true)
	browser.Eval[any](b, "[..."+plan+".querySelectorAll('button')].find(b => b.textContent === 'Review what is approved').click()")
	b.Is("document.activeElement.textContent", "Promote")
	b.Is(plan+".innerText.includes('1 of 2 hunks')", true)
	browser.Eval[any](b, "document.activeElement.click()")
	b.Is("document.activeElement.textContent", "Undo")
	if want := strings.Replace(lines.String(), "line 2\n", "good <b>\n", 1); d.real("long.txt") != want || d.real("a.txt") != "one\n" {
		t.Errorf("promoted: %q, %q", d.real("long.txt"), d.real("a.txt"))
	}
	d.unharmed(b)
}

// outputComesAsItIsWritten: of a command that the page starts.
func outputComesAsItIsWritten(t *testing.T, b *browser.Browser) {
	d := openDesk(t)
	d.snapfs("new", "t1")
	d.begin(b, token.Read, token.Run)
	browser.Eval[any](b, "location.hash = '#/sandbox/t1'")
	b.Is("!!document.getElementById('title')", true)
	openSection(b, "r", "Commands")
	browser.Eval[any](b, "document.getElementById('command').value = 'echo one; until [ -e go ]; do sleep 0.1; done; echo two'")
	browser.Eval[any](b, "document.getElementById('command').form.requestSubmit()")
	b.Is("document.getElementById('output').textContent", "one\n")
	d.snapfs("exec", "t1", "--", "touch", "go")
	b.Is("document.getElementById('output').textContent", "one\ntwo\n")
	d.unharmed(b)
}

// personDecidesOnJobs: on the plan that the page shows.
func personDecidesOnJobs(t *testing.T, b *browser.Browser) {
	d := openDesk(t)
	d.begin(b, token.Scopes()...)
	b.Press("2")
	b.Is(text+".includes('There are none.')", true)
	d.snapfs("job", "submit", "--", "sh", "-c", "echo good > good.txt")
	d.snapfs("job", "submit", "--", "sh", "-c", "echo bad > bad.txt")
	b.Is("document.querySelectorAll('tbody tr').length", 2)
	d.snapfs("job", "work", "--once")
	b.Is("document.getElementById('waiting').textContent", "(2 waiting)")
	b.Is("document.querySelectorAll('button[aria-label^=approve]').length", 2)
	browser.Eval[any](b, "document.querySelector('button[aria-label=\"approve job 1\"]').click()")
	b.Is("document.getElementById('said').textContent", "Job 1 is done.")
	browser.Eval[any](b, "document.querySelector('button[aria-label=\"reject job 2\"]').click()")
	b.Is("document.getElementById('said').textContent", "Job 2 is rejected.")
	b.Is("document.getElementById('waiting').textContent", "")
	if d.real("good.txt") != "good\n" || d.real("bad.txt") != "" {
		t.Errorf("good %q, bad %q", d.real("good.txt"), d.real("bad.txt"))
	}
	d.unharmed(b)
}

// axe is the checker of accessibility, and the version that the test was written for.
const axe = "axe-core@4.14.1"

// xterm are the packages of which the page has files, in static/xterm.
var xterm = []string{"@xterm/xterm@6.0.0", "@xterm/addon-fit@0.11.0"}

// ofThePackages checks that the page's files of xterm.js are those of the packages in a directory.
func ofThePackages(t *testing.T, packages string) {
	t.Helper()
	for file, of := range map[string]string{
		"xterm.mjs": "xterm/lib/xterm.mjs", "xterm.css": "xterm/css/xterm.css", "LICENSE": "xterm/LICENSE",
		"addon-fit.mjs": "addon-fit/lib/addon-fit.mjs", "LICENSE.addon-fit": "addon-fit/LICENSE",
	} {
		ours, err := os.ReadFile("static/xterm/" + file)
		theirs, errTheirs := os.ReadFile(packages + of)
		if err := errors.Join(err, errTheirs); err != nil || !bytes.Equal(ours, theirs) {
			t.Errorf("static/xterm/%s is not %s: %v", file, of, err)
		}
	}
}

// TestInABrowserThePageIsAccessible: axe finds nothing, in light and dark, in any view. Only make test-long runs it: it
// fetches axe.
func TestInABrowserThePageIsAccessible(t *testing.T) {
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	d := newDesk(t)
	treetest.NeedProgram(t, "npm")
	dir := treetest.Dir(t)
	ctx, stop := context.WithTimeout(t.Context(), 4*time.Minute)
	defer stop()
	install := append([]string{"install", "--prefix", dir, "--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts", "--cache", dir + "/cache", axe}, xterm...)
	if out, err := exec.CommandContext(ctx, "npm", install...).CombinedOutput(); err != nil {
		treetest.SkipUnreachable(t, "the package "+axe, string(out))
	}
	ofThePackages(t, dir+"/node_modules/@xterm/")
	library, err := os.ReadFile(dir + "/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	d.snapfs("new", "--memory", "1G", "t1")
	d.snapfs("exec", "t1", "--", "sh", "-c", "echo two > b.txt; echo 1 > a.txt; chmod u+s b.txt")
	d.snapfs("exec", "--detach", "t1", "--", "echo", "hello")
	d.snapfs("job", "submit", "--", "sh", "-c", "echo good > good.txt")
	d.snapfs("job", "work", "--once")
	b := browser.Start(t)
	check := func(what string) {
		t.Helper()
		browser.Eval[any](b, string(library)+";0")
		b.Is(`axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join(' | ')).join('\n'))`, "")
		if t.Failed() {
			t.Fatal(what)
		}
	}
	for _, scheme := range []string{"light", "dark"} {
		feature := map[string]string{"name": "prefers-color-scheme", "value": scheme} //nolint:misspell // its name
		b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{feature}}, nil)
		b.Open("about:blank")
		b.Open(d.base + "/")
		b.Is("!!document.getElementById('token')", true)
		check(scheme + ": login")
		d.begin(b, token.Scopes()...)
		check(scheme + ": sandboxes")
		browser.Eval[any](b, "location.hash = '#/sandbox/t1'")
		b.Is("!!document.getElementById('title')", true)
		for key, title := range map[string]string{"p": "Promotion", "d": "Drift", "r": "Commands", "u": "Usage"} {
			openSection(b, key, title)
		}
		openSection(b, "t", "Terminal")
		openTerminal(b, `printf '\033[31mred \033[38;2;200;200;40mpale\033[0m\n'; exec sleep 600`)
		b.Is(screen+".includes('red pale')", true)
		check(scheme + ": a sandbox")
		browser.Eval[any](b, terminal+".querySelector('input[type=checkbox]').click()")
		b.Is("!!document.querySelector('.xterm-accessibility')", true)
		check(scheme + ": a terminal for a screen reader")
		press(b, "X", 88, 2|8, "")
		browser.Eval[any](b, "document.activeElement.click()")
		b.Is(terminal+".lastChild.textContent", "You have ended the command.")
		browser.Eval[any](b, "[...document.querySelectorAll('button')].find(b => b.textContent === 'Hunks').click()")
		b.Is("document.querySelectorAll('.hunk').length", 1)
		browser.Eval[any](b, "[...document.querySelectorAll('button')].filter(b => /^(Approve all|Output|Lines)$/.test(b.textContent)).forEach(b => b.click())")
		b.Is("document.getElementById('output').textContent", "hello\n")
		browser.Eval[any](b, "[...document.querySelectorAll('button')].find(b => b.textContent === 'Review what is approved').click()")
		b.Is("document.activeElement.textContent", "Promote")
		check(scheme + ": a plan")
		browser.Eval[any](b, "document.activeElement.blur()")
		b.Press("2")
		b.Is("document.querySelectorAll('button[aria-label^=approve]').length", 1)
		check(scheme + ": jobs")
		b.Press("3")
		b.Is("document.querySelectorAll('#log li').length > 3", true)
		check(scheme + ": events")
		b.Press("4")
		setRace(b, "attempts", "echo 2 > a.txt\nexit 1")
		browser.Eval[any](b, "document.querySelector('form.race').requestSubmit()")
		b.Is("document.querySelectorAll('section.wide tbody tr').length", 2)
		browser.Eval[any](b, "document.querySelector('section.wide button').click(); document.querySelector('[aria-label=\"Choose attempt 1\"]').click()")
		b.Is("document.activeElement.textContent", "Promotion of attempt 1")
		check(scheme + ": races")
		browser.Eval[any](b, "document.querySelector('[aria-label=\"Remove attempt 1\"]').click()")
		b.Is("document.querySelectorAll('section.wide').length", 0)
		browser.Eval[any](b, "document.activeElement.blur()")
		b.Press("?")
		b.Is("document.getElementById('help').open", true)
		check(scheme + ": help")
		b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": false}, nil)
		b.Is("document.documentElement.scrollWidth - innerWidth <= 0", true)
		b.Call("Emulation.clearDeviceMetricsOverride", nil, nil)
		browser.Eval[any](b, "document.querySelector('#logout').click()")
		b.Is("!!document.getElementById('token')", true)
	}
	d.unharmed(b)
}
