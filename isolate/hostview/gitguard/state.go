package gitguard

import (
	"bytes"
	"path"
	"strings"
)

// An interrupted cherry-pick, rebase, am, bisect or merge leaves files that tell git how to go on. Some of them
// hold options, and an option can name a program or a file outside.

// mergeStrategies are the merge strategies in git's files that programs on the host may read. Git makes a
// program's name of any other one, and executes the path in it if it has a slash. Of git's own programs "git
// merge-index" executes its first option.
const mergeStrategies = " ort recursive resolve octopus ours subtree "

// mergeOptions are the options of a merge strategy that programs on the host may read. They become options of
// programs, some of which take the path of a file to write.
const mergeOptions = " ours theirs patience histogram minimal diff-algorithm subtree renormalize no-renormalize" +
	" find-renames no-renames rename-threshold ignore-space-change ignore-all-space ignore-space-at-eol" +
	" ignore-cr-at-eol "

// pickOptions are the options of an interrupted git cherry-pick or revert that run no command, whatever their
// value.
const pickOptions = " no-commit edit allow-empty allow-empty-message drop-redundant-commits keep-redundant-commits" +
	" signoff record-origin allow-ff mainline gpg-sign allow-rerere-auto default-msg-cleanup "

// applyOptions are those options that "git am" stores for "git apply" that the host may read. Others write
// files outside.
const applyOptions = " --whitespace --ignore-space-change --ignore-whitespace --directory --exclude --include --reject "

// quotedWords reports whether a text has only words in single quotes, as git quotes them for a shell: old
// versions of git have a shell read the paths of a bisection.
func quotedWords(text string) bool {
	for {
		text = strings.TrimLeft(text, " \n")
		if text == "" {
			return true
		}
		if strings.HasPrefix(text, `\'`) || strings.HasPrefix(text, `\!`) {
			text = text[2:]
			continue
		}
		rest, quoted := strings.CutPrefix(text, "'")
		_, rest, closed := strings.Cut(rest, "'")
		if !quoted || !closed {
			return false
		}
		text = rest
	}
}

func has(list, word string) bool { return word != "" && strings.Contains(list, " "+word+" ") }

// unquote returns a value of one of git's files without quotes and backslashes, as git reads it.
func unquote(value string) string {
	return strings.NewReplacer(`"`, "", `'`, "", `\`, "").Replace(value)
}

// checkState returns an error if the file called name, at path, which holds a word or a list of words for an
// interrupted git command, has one that makes git run a program or write outside.
func (g *Guard) checkState(name, path string, text []byte) error {
	if len(text) == 0 || bytes.Equal(text, g.real(path)) {
		return nil // the user's own
	}
	switch {
	case name == "MERGE_RR":
		return conflicts(text)
	case name == "BISECT_NAMES" && !quotedWords(string(text)):
		return errProgram
	}
	if bytes.IndexByte(text, 0) >= 0 {
		return errProgram
	}
	words := strings.Fields(unquote(string(text)))
	if name == "strategy" {
		// A text of many words is no name of a program, unless it has a path.
		if bytes.IndexByte(text, '/') >= 0 || len(words) == 1 && !has(mergeStrategies, words[0]) {
			return errProgram
		}
		return nil
	}
	for _, word := range words {
		switch name {
		case "strategy_opts":
			if !mergeOption(strings.TrimPrefix(word, "--")) {
				return errProgram
			}
		case "apply-opt":
			option, _, _ := strings.Cut(word, "=")
			if !has(applyOptions, option) && !strings.HasPrefix(word, "-p") && !strings.HasPrefix(word, "-C") {
				return errProgram
			}
		}
	}
	return nil
}

// mergeOption reports whether a word is an option of a git merge strategy that the host may use, such as
// "ours" or "subtree=a/b".
func mergeOption(word string) bool {
	option, _, _ := strings.Cut(word, "=")
	return has(mergeOptions, option) && !strings.ContainsAny(word, " \t\r\n")
}

// conflicts checks git's list of the files with conflicts (MERGE_RR): each path is after a hash and a tab,
// and before a zero. Git copies each file into the repository, and a known solution over it.
func conflicts(text []byte) error {
	for item := range bytes.SplitSeq(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
		id, name, _ := strings.Cut(string(item), "\t")
		if !conflictID(id) || !insideTop(name) {
			return errRefused
		}
	}
	return nil
}

// conflictID reports whether a word is the id of a conflict in git's list of conflicts: a hash, or one with a
// dot and a number. Git skips blanks before the number.
func conflictID(word string) bool {
	hash, number, dot := strings.Cut(word, ".")
	return len(hash) == 2*indexHash && dot == (number != "") && strings.Trim(number, "0123456789") == ""
}

// insideTop reports whether a path in git's files, which is relative to the top of the work tree, does not
// lead out of it.
func insideTop(name string) bool {
	return name != "" && name == path.Clean(name) && name[0] != '/' && name != ".." && !strings.HasPrefix(name, "../")
}

// pick returns the options of an interrupted git cherry-pick or revert, with a comment sign before those that
// could run a command.
func pick(text []byte) []byte {
	if !hasSection(text) {
		return text
	}
	out := bytes.Clone(text)
	scan(text, func(at int, e *entry) {
		if e == nil || e.section == "options" && !pickOption(e) {
			out[at] = '#'
		}
	})
	return out
}

func pickOption(e *entry) bool {
	if strings.Contains(e.value, `\`) {
		return false
	}
	switch value := unquote(e.value); e.key {
	case "strategy":
		return has(mergeStrategies, value)
	case "strategy-option":
		return mergeOption(value)
	}
	return has(pickOptions, e.key)
}
