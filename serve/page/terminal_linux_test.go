package page_test

import (
	"fmt"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest/browser"
	"github.com/snapfs/snapfs/serve/token"
)

const (
	screen   = "[...document.querySelectorAll('.xterm-rows > div')].map(row => row.textContent.trimEnd()).join('\\n')"
	terminal = "document.querySelector('.terminal-box')"
)

// openTerminal starts a command, or a shell for "", in a terminal of the sandbox t1, and waits until it has begun.
func openTerminal(b *browser.Browser, command string) {
	b.T.Helper()
	browser.Eval[any](b, fmt.Sprintf("document.getElementById('terminal-command').value = %q", command))
	browser.Eval[any](b, terminal+".querySelector('form').requestSubmit()")
	b.Is("document.activeElement.className + "+terminal+".querySelectorAll('.xterm').length", "xterm-helper-textarea1")
	b.Is(terminal+".lastChild.textContent.startsWith('The command')", true)
}

// enter types a line.
func enter(b *browser.Browser, line string) {
	b.T.Helper()
	for _, c := range line {
		b.Press(string(c))
	}
	press(b, "Enter", 13, 0, "\r")
}

// press presses a key with its code, as xterm.js needs it, and with modifiers: 2 for Ctrl, 8 for Shift.
func press(b *browser.Browser, key string, code, modifiers int, text string) {
	b.T.Helper()
	down := map[string]any{"type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
	if text != "" {
		down["text"] = text
	}
	b.Call("Input.dispatchKeyEvent", down, nil)
	b.Call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}, nil)
}

// socketOf tries to open a terminal with subprotocols, and returns whether the server lets it.
func socketOf(b *browser.Browser, protocols string) bool {
	b.T.Helper()
	return browser.Eval[bool](b, `new Promise(done => {
		const ws = new WebSocket(location.origin.replace(/^http/, 'ws') + '/v1/sandboxes/t1/terminal', ['snapfs.terminal.v1', `+protocols+`]);
		ws.onopen = () => { done(ws.protocol === 'snapfs.terminal.v1'); ws.close(); };
		ws.onerror = () => done(false);
	})`)
}

// personUsesATerminal: with the keyboard, pasted text and a window that changes. What the command writes does nothing to
// the page, and the policy needs no exception for the terminal.
func personUsesATerminal(t *testing.T, b *browser.Browser) {
	d := openDesk(t)
	d.snapfs("new", "t1")
	d.begin(b, token.Read, token.Run)
	browser.Eval[any](b, "location.hash = '#/sandbox/t1'")
	b.Is("!!document.getElementById('title')", true)
	openSection(b, "t", "Terminal")

	// All keys are the command's, also those of the page.
	openTerminal(b, "")
	enter(b, "echo 1jk2/$((6*7)); read x")
	b.Is(screen+".includes('1jk2/42')", true)
	press(b, "Escape", 27, 0, "")
	enter(b, "a")
	b.Is(screen+".includes('^[a')", true)
	b.Is("location.hash", "#/sandbox/t1")
	// A terminal stays while the page shows something else.
	browser.Eval[any](b, "location.hash = '#/events'")
	b.Is("!!document.getElementById('log')", true)
	browser.Eval[any](b, "location.hash = '#/sandbox/t1'")
	b.Is("!!document.getElementById('title')", true)
	openSection(b, "t", "Terminal")
	b.Is(screen+".includes('1jk2/42')", true)
	browser.Eval[any](b, "document.querySelector('.xterm textarea').focus()")
	press(b, "X", 88, 2|8, "")
	b.Is("document.activeElement.textContent", "End it")
	browser.Eval[any](b, "document.activeElement.click()")
	b.Is(terminal+".lastChild.textContent", "You have ended the command.")
	b.Is("document.activeElement.textContent", "Open a terminal")

	openTerminal(b, "trap 'stty size' WINCH; stty size; until [ -e go ]; do sleep 0.05; done; exit 3")
	const shown, margin = "document.querySelector('.xterm-screen').offsetWidth", "Math.abs(document.querySelector('.screen').clientWidth - document.querySelector('.xterm-screen').offsetWidth)"
	told := func(i int) string {
		return fmt.Sprintf("Number(%s.trim().split('\\n').at(-1).split(' ')[%d])", screen, i)
	}
	cell := 0.0
	size := func(width int) {
		t.Helper()
		b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
		b.Is(fmt.Sprintf("%s < 40 && %s === document.querySelectorAll('.xterm-rows > div').length && Math.abs(%s / %s - %f) < 0.05", margin, told(0), shown, told(1), cell), true)
	}
	b.Is(told(1)+" > 0", true)
	cell = browser.Eval[float64](b, shown+" / "+told(1))
	size(900)
	size(1400)
	b.Call("Emulation.clearDeviceMetricsOverride", nil, nil)
	d.snapfs("exec", "t1", "--", "touch", "go")
	b.Is(terminal+".lastChild.textContent", "The command has ended with status 3.")

	// A pasted text cannot end its brackets, by which a shell knows that it was not typed.
	openTerminal(b, `stty raw -echo; printf '\033[?2004hready'; head -c 24 | cat -v`)
	b.Is(screen+".includes('ready')", true)
	browser.Eval[any](b, `(() => {
		const data = new DataTransfer();
		data.setData('text/plain', 'one\n\x1b[201~two');
		document.activeElement.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
	})()`)
	b.Is(screen+".includes('^[[200~one^M[201~two^[[201~')", true)
	b.Is(terminal+".lastChild.textContent", "The command has ended with status 0.")

	openTerminal(b, `printf '\033]2;evil\007\033]52;c;ZXZpbA==\007\033]8;;https://127.0.0.1:9/\033\\link\033]8;;\033\\ \033[38;2;200;40;60mtrue\033[0m <img src=x onerror=pwned=1>'`)
	b.Is(screen+".includes('link true <img src=x onerror=pwned=1>')", true)
	b.Is("[...document.querySelectorAll('.xterm-rows span')].some(e => e.textContent === 'true' && e.style.color)", true)
	b.Is("document.title + document.querySelectorAll('.xterm a, .xterm-underline-5').length", "snapfs0")
	// A flood does not fill the memory, and its end is shown.
	openTerminal(b, "yes 0123456789 | head -c 8000000; echo over")
	b.Is(screen+".includes('over')", true)
	b.Is(terminal+".lastChild.textContent.startsWith('The command has ended with status 0.')", true)
	d.unharmed(b)

	const key = "'snapfs.key.' + localStorage.getItem('snapfs.key')"
	for protocols, want := range map[string]bool{key: true, "'snapfs.key.'": false, key + " + 'A'": false, "'other'": false} {
		if got := socketOf(b, protocols); got != want {
			t.Errorf("a terminal with %s: %v", protocols, got)
		}
	}
	openTerminal(b, "exec sleep 600")
	if err := d.stop(); err != nil {
		t.Error(err)
	}
	b.Is(terminal+".lastChild.textContent.startsWith('The connection is lost')", true)
}

// noTerminalWithoutTheScope: the page has none, and the server refuses one that the page does not have.
func noTerminalWithoutTheScope(t *testing.T, b *browser.Browser) {
	d := openDesk(t)
	d.snapfs("new", "t1")
	d.begin(b, token.Read, token.Promote)
	browser.Eval[any](b, "location.hash = '#/sandbox/t1'")
	b.Is("!!document.getElementById('title')", true)
	openSection(b, "t", "Terminal")
	b.Is(terminal+".querySelectorAll('button:enabled').length", 0)
	d.unharmed(b)
	if socketOf(b, "'snapfs.key.' + localStorage.getItem('snapfs.key')") {
		t.Error("a terminal without the scope run")
	}
}
