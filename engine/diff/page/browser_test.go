package page_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/treetest/browser"
)

// saved writes the page of a pair to a file.
func saved(t testing.TB, p pair) string {
	t.Helper()
	text, _ := p.write(t, "demo", "snapfs", "diff", "demo")
	file := filepath.Join(treetest.Dir(t), "page.html")
	must(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

func TestInABrowserNothingOfATreeRuns(t *testing.T) {
	file, b := saved(t, hostile(t)), browser.Start(t)
	b.Open("file://" + file)
	b.Is("document.title", "demo")
	b.Is("document.querySelectorAll('img,iframe,svg,object,embed,link,base,math,textarea,audio,video').length", 0)
	b.Is("document.scripts.length", 1)
	b.Press("s") // the script then moves all text
	b.Is("document.querySelectorAll('table.split').length > 50", true)
	b.Press("x")
	browser.Eval[any](b, "document.getElementById('filter').value = 'img'; document.getElementById('filter').dispatchEvent(new Event('input'))")
	b.Is("document.querySelectorAll('img,script:not(body>script)').length", 0)
	b.Is("typeof pwned", "undefined")
	b.Quiet("file://" + file)

	// The content security policy would have stopped it, too.
	b.Is(`(() => { const s = document.createElement('script'); try { s.textContent = 'pwned=1' } catch (e) { return e.name } })()`, "TypeError")
	b.Is(`(() => { try { document.body.innerHTML = '<b>' } catch (e) { return e.name } })()`, "TypeError")
	b.Is(`fetch('file:///etc/hostname').then(() => 'came', e => e.name)`, "TypeError")
	b.Is(`new Promise(r => { const i = new Image(); i.onload = () => r('came'); i.onerror = () => r('refused'); i.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACw=' })`, "refused")
	b.Is("typeof pwned", "undefined")
}

func TestInABrowserAPageIsReviewed(t *testing.T) {
	file, b := saved(t, everything(t)), browser.Start(t)
	b.Open("file://" + file)
	all := browser.Eval[int](b, "document.querySelectorAll('article').length")
	if all < 12 {
		t.Fatalf("%d files", all)
	}
	const (
		conf  = "[...document.querySelectorAll('article')].find(f => f.querySelector('.path').textContent === 'conf')"
		shown = "[...document.querySelectorAll('article:not([hidden])')].map(f => f.querySelector('.path').textContent).join()"
	)
	part := func(name string, f func()) {
		t.Run(name, func(in *testing.T) {
			b.T = in
			defer func() { b.T = t }()
			f()
		})
	}
	id := "#" + browser.Eval[string](b, conf+".id")

	part("folding", func() {
		b.Click(id + ">details>summary .what")
		b.Is(conf+".querySelector('details').open", false)
		b.Is(conf+".querySelector('table').checkVisibility({contentVisibilityAuto: false})", false)
		b.Click(id + ">details>summary .what")
		b.Is(conf+".querySelector('details').open", true)
		b.Click("#fold")
		b.Is("document.querySelectorAll('article>details[open]').length", 0)
		b.Is("new Promise(r => setTimeout(() => r(document.getElementById('fold').textContent)))", "Unfold all")
		b.Click("#fold")
		b.Is("document.querySelectorAll('article>details[open]').length", all)
	})
	part("side by side", func() {
		main := func() string {
			return browser.Eval[string](b, "document.querySelector('main').outerHTML.replaceAll(' class=\"\"', '')")
		}
		before := main()
		b.Click("#split")
		b.Is("document.getElementById('split').ariaPressed", true)
		b.Is("[...document.querySelectorAll('main table')].every(t => t.matches('.split'))", true)
		b.Is("[..."+conf+".querySelectorAll('tbody tr')].slice(1).map(r => [...r.cells].map(c => c.textContent + '/' + c.className).join('|')).join('\\n')",
			"1/d|port = 80/d|1/a|port = 8080/a\n2/|host = a/|2/|host = a/\n/none|/none|3/a|idle = 1/a")
		b.Is("(r => r[1].getBoundingClientRect().right <= r[3].getBoundingClientRect().left + 1 && r[1].getBoundingClientRect().top === r[3].getBoundingClientRect().top)("+conf+".querySelectorAll('tr')[2].cells)", true)
		b.Click("#split")
		if main() != before {
			b.T.Error("there and back is not the same")
		}
	})
	part("filter", func() {
		b.Press("/")
		for _, key := range []string{"N", "A", "m", "e", " ", "w", "a", "s"} {
			b.Press(key)
		}
		b.Is(shown, "is/name")
		b.Is("[...document.querySelectorAll('nav li:not([hidden])')].length", 2)
		b.Press("z")
		b.Is("document.getElementById('none').checkVisibility()", true)
		b.Press("Escape")
		b.Is("document.querySelectorAll('article[hidden],nav li[hidden]').length", 0)
		b.Is("document.getElementById('none').checkVisibility()", false)
	})
	part("reviewed", func() {
		b.Click(id + " .seen input")
		b.Is("document.getElementById('seen').textContent", "1 of "+browser.Eval[string](b, "String(document.querySelectorAll('article').length)")+" reviewed")
		b.Is(conf+".querySelector('details').open", false)
		b.Is("document.querySelectorAll('nav li.done').length", 1)
		b.Is("[document.cookie, Object.keys(localStorage).length, Object.keys(sessionStorage).length, location.hash].join()", ",0,0,")
		b.Click(id + " .seen input")
		b.Is("document.getElementById('seen').textContent[0]", "0")
	})
	part("keys", func() {
		browser.Eval[any](b, "document.activeElement.blur(); scrollTo(0, 0)")
		b.Open("file://" + file)
		b.Press("j")
		b.Press("j")
		b.Press("k")
		b.Is("document.querySelector('article.now .path').textContent", "attr")
		b.Is("document.querySelector('nav a[aria-current]').textContent", "attr")
		b.Is("document.activeElement.closest('article').id", "f0")
		b.Press("x")
		b.Is("document.getElementById('seen').textContent[0] + document.querySelector('article.now').id", "1f1")
		b.Press("o")
		b.Is("document.querySelector('#f1>details').open", false)
		b.Press("s")
		b.Is("document.querySelectorAll('table.split').length > 0", true)
		b.Press("?")
		b.Is("document.getElementById('help').open", true)
		b.Press("j")
		b.Is("document.querySelector('article.now').id", "f1")
		b.Click("#letters")
		b.Press("Escape")
		b.Press("j")
		b.Is("document.querySelector('article.now').id", "f1")
	})
	part("jumping", func() {
		b.Open("file://" + file)
		b.Click("nav a[href='" + id + "']")
		b.Is("document.querySelector('article.now').id", id[1:])
		b.Is("location.hash", id)
	})
	b.Quiet("file://" + file)
}

// contrast returns each pair of text and background colours with too little contrast for WCAG
// 2.1 (1.4.3: 4.5 to 1), or the number of texts if it found too few.
//
//nolint:misspell // names that CSS has
const contrast = `(() => {
	const parts = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m };
	const light = c => { const l = c.slice(0, 3).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * l[0] + .7152 * l[1] + .0722 * l[2] };
	const behind = e => { for (; e; e = e.parentElement) { const b = parts(getComputedStyle(e).backgroundColor); if (b[3] === 1) return b } return [255, 255, 255, 1] };
	const bad = new Set; let seen = 0;
	for (const e of document.body.querySelectorAll('*')) {
		if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
		seen++;
		const a = light(parts(getComputedStyle(e).color)), b = light(behind(e)), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) bad.add(e.tagName + '.' + e.className + ' in ' + e.parentElement.tagName + '.' + e.parentElement.className + ': ' + ratio.toFixed(2));
	}
	return [seen > 100 ? '' : seen, ...bad].join('; ');
})()`

func TestInABrowserAPageIsReadable(t *testing.T) {
	file, b := saved(t, everything(t)), browser.Start(t)
	for _, scheme := range []string{"light", "dark"} {
		feature := map[string]string{"name": "prefers-color-scheme", "value": scheme} //nolint:misspell // its name
		b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{feature}}, nil)
		b.Open("file://" + file)
		b.Is(contrast, "")
		b.Is("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] > 128", scheme == "light")
		b.Press("s")
		b.Press("x")
		b.Is(contrast, "")
	}
	// Every control has a name, and the page has landmarks and headings.
	b.Is("[...document.querySelectorAll('input,button')].filter(e => !(e.ariaLabel || e.textContent || e.labels?.[0]?.textContent)).length", 0)
	b.Is("['header', 'nav[aria-label]', 'main', 'h1', 'h2', 'h3', '[role=search]', 'a.skip'].filter(s => !document.querySelector(s)).join()", "")
	for _, width := range []int{1400, 390} {
		b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false}, nil)
		b.Is("document.documentElement.scrollWidth - innerWidth <= 0", true)
	}
	b.Quiet("file://" + file)
}

func TestInABrowserAPageIsReadableWithoutItsScript(t *testing.T) {
	file, b := saved(t, everything(t)), browser.Start(t)
	b.Call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	b.Open("file://" + file)
	var root struct{ Root struct{ NodeID int } }
	b.Call("DOM.getDocument", nil, &root)
	for selector, there := range map[string]bool{
		"#tools[hidden]": true, ".seen:not([hidden])": false, "article>details[open]>table": true, "article>details:not([open])": false, "nav a[href='#f0']": true, "[hidden] article": false,
	} {
		var found struct{ NodeID int }
		b.Call("DOM.querySelector", map[string]any{"nodeId": root.Root.NodeID, "selector": selector}, &found)
		if (found.NodeID != 0) != there {
			t.Errorf("%s: %v", selector, !there)
		}
	}
	b.Quiet("file://" + file)
}
