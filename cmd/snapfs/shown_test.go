package main

import (
	"strings"
	"testing"
)

func TestNothingHostileReachesATerminal(t *testing.T) {
	const text = "a\x1b]0;x\x07\tb\u202ec\u009bd\xffe\n€\x7f\u061ce\u200b\U000e0041"
	const want = "a^[]0;x^G\tb<U+202E>c<U+009B>d<FF>e\n€^?<U+061C>e<U+200B><U+E0041>"
	if got := tame(text); got != want {
		t.Errorf("tame = %q, want %q", got, want)
	}
	if got := tame("a\xe2\x82"); got != "a<E2><82>" {
		t.Errorf("half a rune is %q", got)
	}
	var b strings.Builder // byte by byte, so that every rune is split
	w := &tamer{w: &b}
	for i := range len(text) {
		if _, err := w.Write([]byte{text[i]}); err != nil {
			t.Fatal(err)
		}
	}
	if b.String() != want {
		t.Errorf("byte by byte = %q, want %q", b.String(), want)
	}
}
