package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// badWords are words that this code does not use in comments and identifiers, each with
// what to write instead. They are old names of things that the field has a word for, or
// words that hide who acts.
var badWords = map[string]string{
	"told":     "who reports what to whom? report, log, return, notify",
	"beneath":  "below, inside, in",
	"raise":    "copy up; report a conflict",
	"raises":   "copies up; reports a conflict",
	"raised":   "copied up; reported",
	"raising":  "copying up; reporting",
	"apart":    "separate, uncached view",
	"kept":     "recorded, stored, permanent, cached: or who keeps it?",
	"keeper":   "supervisor",
	"keepers":  "supervisors",
	"deeds":    "dirty inode state, steps",
	"outlet":   "proxy",
	"warden":   "supervisor",
	"parcel":   "stream",
	"marshal":  "coordinator",
	"looker":   "reader",
	"stratum":  "extent source",
	"strata":   "extent sources",
	"whoever":  "name the subject: the caller, a process, the user",
	"homeless": "name the state: unlinked, without a parent",
	"box":      "sandbox, or container for the kernel objects",
	"boxes":    "sandboxes, or containers for the kernel objects",
}

// inNames are the bad words that an identifier may hold: a field or a local variable may
// have a participle for a name, and JSON keys stay.
var inNames = map[string]bool{"told": true, "beneath": true, "kept": true, "apart": true, "marshal": true, "raise": true, "raised": true}

// wordException allows a word in the files of a path, for a reason.
type wordException struct {
	path   string // a file, or the directory of a package
	word   string // "" allows every word
	reason string
}

var wordExceptions = []wordException{
	{"bench/report.go", "told", "Told is a key of the JSON report"},
	{"workflow/race/race.go", "kept", "Kept is a key of the JSON document"},
	{"workflow/transfer/stream/stream.go", "parcel", "the first line of a stream, which is the format"},
	{"cmd/snapfs/raceshow.go", "kept", "Kept is a key of the JSON document"},
	{"cmd/snapfs/run.go", "kept", "a value of the JSON document"},
}

// whatClause is the name under which a clause like "what the kernel has" is reported.
const whatClause = "what … is"

// TestWords: comments and identifiers use the words of the field, so that a reader can
// search for them. Strings are not checked.
func TestWords(t *testing.T) {
	used := make([]bool, len(wordExceptions))
	for path, src := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		report := func(pos token.Position, word, where string) {
			for i, e := range wordExceptions {
				if (e.path == name || e.path == filepath.Dir(name)) && (e.word == "" || e.word == word) {
					used[i] = true
					return
				}
			}
			instead := badWords[word]
			if word == whatClause {
				instead = "a noun"
			}
			t.Errorf("%s:%d: %q in %s: write %s", name, pos.Line, word, where, instead)
		}
		fset, file := parse(t, path, src)
		for _, group := range file.Comments {
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, "//go:") || strings.HasPrefix(c.Text, "//nolint") {
					continue
				}
				for _, word := range badIn(c.Text) {
					report(fset.Position(c.Pos()), word, "a comment")
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				for _, word := range nameWords(id.Name) {
					if badWords[word] != "" && !inNames[word] {
						report(fset.Position(id.Pos()), word, "the name "+id.Name)
					}
				}
			}
			return true
		})
	}
	for i, e := range wordExceptions {
		if !used[i] && e.word != "" {
			t.Errorf("exception for %q in %s is not needed any more: delete it", e.word, e.path)
		}
	}
}

// badIn returns the bad words of a comment's line, and whatClause for each clause of
// "what", one or two words, and "is", "has" or "was".
func badIn(comment string) (bad []string) {
	words := strings.FieldsFunc(strings.ToLower(comment), func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' && r != '_' })
	for i, word := range words {
		if badWords[word] != "" {
			bad = append(bad, word)
		}
		if word != "what" {
			continue
		}
		for _, next := range words[min(i+2, len(words)):min(i+4, len(words))] {
			if next == "is" || next == "has" || next == "was" {
				bad = append(bad, whatClause)
				break
			}
		}
	}
	return bad
}

// nameWords splits an identifier at its capitals, in lower case.
func nameWords(name string) (words []string) {
	start := 0
	for i, r := range name {
		if i > start && (unicode.IsUpper(r) || r == '_') {
			words = append(words, strings.ToLower(strings.Trim(name[start:i], "_")))
			start = i
		}
	}
	return append(words, strings.ToLower(strings.Trim(name[start:], "_")))
}

// TestWordsAreFound: the check finds a bad word, a clause and a part of a name.
func TestWordsAreFound(t *testing.T) {
	const want = "[told what … is beneath] [new keeper]"
	got := fmt.Sprint(badIn("// It is told what the kernel has, beneath."), nameWords("newKeeper"))
	if got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}
