package patch

import (
	"bufio"
	"compress/zlib"
	"fmt"
	"io"
)

// binary writes both versions of a binary file whole, as git does: the first for applying the patch, the
// second for reverting it.
func (p *printer) binary(e ends, a, b blob) error {
	p.out.WriteString("GIT binary patch\n")
	if err := p.literal(e.to, b); err != nil {
		return err
	}
	return p.literal(e.from, a)
}

// literal writes the content of a file to the patch, compressed and in git's base 85, without holding it in
// memory.
func (p *printer) literal(path string, b blob) error {
	fmt.Fprintf(p.out, "literal %d\n", b.size)
	lines := &base85{out: p.out}
	pack := zlib.NewWriter(lines)
	if b.node != nil {
		r, size, err := p.open(b, path)
		if err != nil {
			return err
		}
		copied, err := io.Copy(pack, r)
		_ = r.Close() // opened for reading only
		if err != nil || size != b.size || copied != size {
			return p.fail(path, err)
		}
	}
	if err := pack.Close(); err != nil {
		return err
	}
	lines.flush()
	p.out.WriteByte('\n')
	return nil
}

// base85 writes its input in git's base 85, as lines of up to 52 bytes: a letter for the length (A to Z for 1
// to 26, a to z for 27 to 52), then five digits for every four bytes, the most significant first (git,
// base85.c and diff.c).
type base85 struct {
	out  *bufio.Writer
	line [52]byte
	n    int
}

const digits85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

func (w *base85) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		n := copy(w.line[w.n:], rest)
		w.n, rest = w.n+n, rest[n:]
		if w.n == len(w.line) {
			w.flush()
		}
	}
	return len(data), nil
}

func (w *base85) flush() {
	if w.n == 0 {
		return
	}
	if w.n <= 26 {
		w.out.WriteByte('A' + byte(w.n) - 1)
	} else {
		w.out.WriteByte('a' + byte(w.n) - 27)
	}
	clear(w.line[w.n:])
	for i := 0; i < w.n; i += 4 {
		v := uint32(w.line[i])<<24 | uint32(w.line[i+1])<<16 | uint32(w.line[i+2])<<8 | uint32(w.line[i+3])
		var digits [5]byte
		for d := 4; d >= 0; d-- {
			digits[d] = digits85[v%85]
			v /= 85
		}
		w.out.Write(digits[:])
	}
	w.out.WriteByte('\n')
	w.n = 0
}
