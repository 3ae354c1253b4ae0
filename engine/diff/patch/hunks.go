package patch

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
)

// patchText carries out hunks. Every line must be at its place: no offset, and
// nothing in the neighbourhood that differs.
func patchText(in *bufio.Reader, base, dst *os.File) error {
	var old []byte
	if base != nil {
		var err error
		if old, err = io.ReadAll(io.NewSectionReader(base, 0, TextMax+1)); err != nil {
			return err
		}
	}
	h := hunks{in: in, old: old}
	for {
		more, err := h.hunk()
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	h.out.Write(h.old)
	_, err := dst.Write(h.out.Bytes())
	return err
}

// hunks is the work of patchText: old is what is left of it, line the number of
// its first line, from 0.
type hunks struct {
	in   *bufio.Reader
	old  []byte
	line int
	out  bytes.Buffer
}

// hunk carries out the next one, if there is one.
func (h *hunks) hunk() (bool, error) {
	if head, err := h.in.Peek(3); err != nil || string(head) != "@@ " {
		return false, nil //nolint:nilerr // the patch ends here
	}
	head, err := h.in.ReadString('\n')
	if err != nil {
		return false, errBroken
	}
	fields := strings.Fields(head)
	if len(fields) < 4 || fields[0] != "@@" || fields[3] != "@@" {
		return false, errBroken
	}
	from, before, ok1 := spanOf(fields[1], '-')
	_, after, ok2 := spanOf(fields[2], '+')
	if !ok1 || !ok2 || from < h.line {
		return false, errBroken
	}
	for h.line < from {
		line := h.take()
		if line == nil {
			return false, errBroken
		}
		h.out.Write(line)
	}
	for before > 0 || after > 0 {
		op, text, err := h.edit()
		if err != nil {
			return false, err
		}
		if op != '+' {
			before--
			if !bytes.Equal(h.take(), text) {
				return false, errBroken
			}
		}
		if op != '-' {
			after--
			h.out.Write(text)
		}
		if before < 0 || after < 0 {
			return false, errBroken
		}
	}
	return true, nil
}

// edit reads a line of a hunk, without the end of line that it may lack.
func (h *hunks) edit() (op byte, text []byte, err error) {
	line, err := h.in.ReadBytes('\n')
	if err != nil || !strings.ContainsRune(" +-", rune(line[0])) {
		return 0, nil, errBroken
	}
	op, text = line[0], line[1:]
	if next, err := h.in.Peek(1); err == nil && next[0] == '\\' {
		if _, err := h.in.ReadSlice('\n'); err != nil && err != io.EOF {
			return 0, nil, errBroken
		}
		text = text[:len(text)-1]
	}
	return op, text, nil
}

// take takes the next line off the old text; nil at its end.
func (h *hunks) take() []byte {
	if len(h.old) == 0 {
		return nil
	}
	n := bytes.IndexByte(h.old, '\n') + 1
	if n == 0 {
		n = len(h.old)
	}
	line := h.old[:n]
	h.old = h.old[n:]
	h.line++
	return line
}

// spanOf reads "-first,count": how many lines come before, and how many there are.
func spanOf(text string, sign byte) (start, count int, ok bool) {
	if text[0] != sign {
		return 0, 0, false
	}
	first, length, counted := strings.Cut(text[1:], ",")
	start, err := strconv.Atoi(first)
	if err != nil {
		return 0, 0, false
	}
	count = 1
	if counted {
		if count, err = strconv.Atoi(length); err != nil {
			return 0, 0, false
		}
	}
	if count > 0 {
		start--
	}
	return start, count, start >= 0 && count >= 0
}
