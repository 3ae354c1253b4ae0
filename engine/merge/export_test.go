package merge

// Text merges lines, three-way. It takes both edits where at least one unchanged line
// is between them, and where they are equal. Every other region is a conflict: merged has all
// three versions of it between markers, and conflicts counts these regions. Lines end in
// a line feed; a carriage return belongs to its line.
//
// Text agrees with git: the result of a clean merge is that of `git merge-file`, and the
// result with conflicts that of `git merge-file --diff3`. There are two exceptions. A
// region that several edits of each side made equal is no conflict for Text and for `git
// merge-file`, but is one for --diff3. And after more than 256 adjacent edits without a
// distinctive line, git and Text each accept an edit script that need not be the
// shortest, and these may differ.
//
// Cost: linear for few differences; below N·sqrt(N)·log(N) for N lines, D of them
// different. Memory: three times the texts. Text does not check for NUL bytes.
func Text(base, mine, real []byte, names Names) (merged []byte, conflicts int) {
	t := newTriple(base, mine, real)
	all := t.merge()
	return t.write(all, names), all.conflicts()
}
