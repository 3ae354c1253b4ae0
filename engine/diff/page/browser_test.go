package page_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
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
	file, b := saved(t, hostile(t)), start(t)
	b.open(file)
	b.is("document.title", "demo")
	b.is("document.querySelectorAll('img,iframe,svg,object,embed,link,base,math,textarea,audio,video').length", 0)
	b.is("document.scripts.length", 1)
	b.press("s") // the script then moves all text
	b.is("document.querySelectorAll('table.split').length > 50", true)
	b.press("x")
	eval[any](b, "document.getElementById('filter').value = 'img'; document.getElementById('filter').dispatchEvent(new Event('input'))")
	b.is("document.querySelectorAll('img,script:not(body>script)').length", 0)
	b.is("typeof pwned", "undefined")
	b.quiet(file)

	// The content security policy would have stopped it, too.
	b.is(`(() => { const s = document.createElement('script'); try { s.textContent = 'pwned=1' } catch (e) { return e.name } })()`, "TypeError")
	b.is(`(() => { try { document.body.innerHTML = '<b>' } catch (e) { return e.name } })()`, "TypeError")
	b.is(`fetch('file:///etc/hostname').then(() => 'came', e => e.name)`, "TypeError")
	b.is(`new Promise(r => { const i = new Image(); i.onload = () => r('came'); i.onerror = () => r('refused'); i.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACw=' })`, "refused")
	b.is("typeof pwned", "undefined")
}

func TestInABrowserAPageIsReviewed(t *testing.T) {
	file, b := saved(t, everything(t)), start(t)
	b.open(file)
	all := eval[int](b, "document.querySelectorAll('article').length")
	if all < 12 {
		t.Fatalf("%d files", all)
	}
	const (
		conf  = "[...document.querySelectorAll('article')].find(f => f.querySelector('.path').textContent === 'conf')"
		shown = "[...document.querySelectorAll('article:not([hidden])')].map(f => f.querySelector('.path').textContent).join()"
	)
	part := func(name string, f func()) {
		t.Run(name, func(in *testing.T) {
			b.t = in
			defer func() { b.t = t }()
			f()
		})
	}
	id := "#" + eval[string](b, conf+".id")

	part("folding", func() {
		b.click(id + ">details>summary .what")
		b.is(conf+".querySelector('details').open", false)
		b.is(conf+".querySelector('table').checkVisibility({contentVisibilityAuto: false})", false)
		b.click(id + ">details>summary .what")
		b.is(conf+".querySelector('details').open", true)
		b.click("#fold")
		b.is("document.querySelectorAll('article>details[open]').length", 0)
		b.is("new Promise(r => setTimeout(() => r(document.getElementById('fold').textContent)))", "Unfold all")
		b.click("#fold")
		b.is("document.querySelectorAll('article>details[open]').length", all)
	})
	part("side by side", func() {
		main := func() string {
			return eval[string](b, "document.querySelector('main').outerHTML.replaceAll(' class=\"\"', '')")
		}
		before := main()
		b.click("#split")
		b.is("document.getElementById('split').ariaPressed", true)
		b.is("[...document.querySelectorAll('main table')].every(t => t.matches('.split'))", true)
		b.is("[..."+conf+".querySelectorAll('tbody tr')].slice(1).map(r => [...r.cells].map(c => c.textContent + '/' + c.className).join('|')).join('\\n')",
			"1/d|port = 80/d|1/a|port = 8080/a\n2/|host = a/|2/|host = a/\n/none|/none|3/a|idle = 1/a")
		b.is("(r => r[1].getBoundingClientRect().right <= r[3].getBoundingClientRect().left + 1 && r[1].getBoundingClientRect().top === r[3].getBoundingClientRect().top)("+conf+".querySelectorAll('tr')[2].cells)", true)
		b.click("#split")
		if main() != before {
			b.t.Error("there and back is not the same")
		}
	})
	part("filter", func() {
		b.press("/")
		for _, key := range []string{"N", "A", "m", "e", " ", "w", "a", "s"} {
			b.press(key)
		}
		b.is(shown, "is/name")
		b.is("[...document.querySelectorAll('nav li:not([hidden])')].length", 2)
		b.press("z")
		b.is("document.getElementById('none').checkVisibility()", true)
		b.press("Escape")
		b.is("document.querySelectorAll('article[hidden],nav li[hidden]').length", 0)
		b.is("document.getElementById('none').checkVisibility()", false)
	})
	part("reviewed", func() {
		b.click(id + " .seen input")
		b.is("document.getElementById('seen').textContent", "1 of "+eval[string](b, "String(document.querySelectorAll('article').length)")+" reviewed")
		b.is(conf+".querySelector('details').open", false)
		b.is("document.querySelectorAll('nav li.done').length", 1)
		b.is("[document.cookie, Object.keys(localStorage).length, Object.keys(sessionStorage).length, location.hash].join()", ",0,0,")
		b.click(id + " .seen input")
		b.is("document.getElementById('seen').textContent[0]", "0")
	})
	part("keys", func() {
		eval[any](b, "document.activeElement.blur(); scrollTo(0, 0)")
		b.open(file)
		b.press("j")
		b.press("j")
		b.press("k")
		b.is("document.querySelector('article.now .path').textContent", "attr")
		b.is("document.querySelector('nav a[aria-current]').textContent", "attr")
		b.is("document.activeElement.closest('article').id", "f0")
		b.press("x")
		b.is("document.getElementById('seen').textContent[0] + document.querySelector('article.now').id", "1f1")
		b.press("o")
		b.is("document.querySelector('#f1>details').open", false)
		b.press("s")
		b.is("document.querySelectorAll('table.split').length > 0", true)
		b.press("?")
		b.is("document.getElementById('help').open", true)
		b.press("j")
		b.is("document.querySelector('article.now').id", "f1")
		b.click("#letters")
		b.press("Escape")
		b.press("j")
		b.is("document.querySelector('article.now').id", "f1")
	})
	part("jumping", func() {
		b.open(file)
		b.click("nav a[href='" + id + "']")
		b.is("document.querySelector('article.now').id", id[1:])
		b.is("location.hash", id)
	})
	b.quiet(file)
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
	file, b := saved(t, everything(t)), start(t)
	for _, scheme := range []string{"light", "dark"} {
		feature := map[string]string{"name": "prefers-color-scheme", "value": scheme} //nolint:misspell // its name
		b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{feature}}, nil)
		b.open(file)
		b.is(contrast, "")
		b.is("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] > 128", scheme == "light")
		b.press("s")
		b.press("x")
		b.is(contrast, "")
	}
	// Every control has a name, and the page has landmarks and headings.
	b.is("[...document.querySelectorAll('input,button')].filter(e => !(e.ariaLabel || e.textContent || e.labels?.[0]?.textContent)).length", 0)
	b.is("['header', 'nav[aria-label]', 'main', 'h1', 'h2', 'h3', '[role=search]', 'a.skip'].filter(s => !document.querySelector(s)).join()", "")
	for _, width := range []int{1400, 390} {
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false}, nil)
		b.is("document.documentElement.scrollWidth - innerWidth <= 0", true)
	}
	b.quiet(file)
}

func TestInABrowserAPageIsReadableWithoutItsScript(t *testing.T) {
	file, b := saved(t, everything(t)), start(t)
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	b.open(file)
	var root struct{ Root struct{ NodeID int } }
	b.call("DOM.getDocument", nil, &root)
	for selector, there := range map[string]bool{
		"#tools[hidden]": true, ".seen:not([hidden])": false, "article>details[open]>table": true, "article>details:not([open])": false, "nav a[href='#f0']": true, "[hidden] article": false,
	} {
		var found struct{ NodeID int }
		b.call("DOM.querySelector", map[string]any{"nodeId": root.Root.NodeID, "selector": selector}, &found)
		if (found.NodeID != 0) != there {
			t.Errorf("%s: %v", selector, !there)
		}
	}
	b.quiet(file)
}
